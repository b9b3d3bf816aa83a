"""Classes as TRL's `environment_factory` takes them."""

from __future__ import annotations

import random


class Box:
    def __init__(self) -> None:
        self.reward = 0.0

    def reset(self, code: int = 7, **row) -> str:
        self.code, self.done, self.noise = code, False, random.random()
        return "A box is closed."

    def look(self) -> str:
        """Read the note.

        Returns:
            The note.
        """
        return f"The code is {self.code}, the noise {self.noise}."

    def open(self, code: int) -> str:
        """Open the box.

        Args:
            code: its code.

        Returns:
            What happens.
        """
        if code < 0:
            raise ValueError("a code is 0 or more")
        self.reward = float(code == self.code)
        self.done = self.reward == 1
        return "It opens." if self.done else "It stays closed."

    def _hidden(self) -> None:
        pass


class Untyped:
    def reset(self) -> None:
        pass

    def look(self, what):
        """Look."""


class Nothing:
    def reset(self) -> None:
        pass


def half(environments, prompts, completions, code, **columns):
    assert len(prompts) == len(completions) == len(code) == 1
    return [env.reward / 2 + 0.25 * (code[0] == env.code) for env in environments]
