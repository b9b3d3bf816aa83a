"""Boxes and a lock, played by calling tools: one of the boxes holds a note with the code that opens the lock."""

from __future__ import annotations

from typing import Any

from ragen_verl.env.calls import called
from ragen_verl.env.core import Step
from ragen_verl.env.tools import ToolEnv, tool
from ragen_verl.errors import RecipeError

__all__ = ["Lockbox"]

_NAMES = ("red", "green", "blue", "white", "black", "brown")


class Lockbox(ToolEnv):
    """Boxes, one of which holds the code that opens a lock.

    ## Description
    The smallest task in which a call needs the result of an earlier one.

    ## Action Space
    Calls of `look(box)` and `open(code)`, or a reply without a call.

    ## Observation Space
    The result of the last call.

    ## Starting State
    The code and its box are drawn with the seed.

    ## Rewards
    1 for opening the lock.

    ## Episode End
    When the lock opens, at the last wrong try, and at a reply without a call.

    ## Arguments
    `boxes`, `digits`, `tries`, `max_actions`.

    ## Version History
    - v0: the first version.

    Args:
        boxes: 1 to 6.
        digits: of the code, 1 to 6.
        tries: codes that may be tried; the last wrong one ends the episode.
        max_actions: calls of an episode.

    Raises:
        RecipeError: a number is outside its range.
    """

    max_actions = 5

    def __init__(self, boxes: int = 3, digits: int = 2, tries: int = 2, max_actions: int = 5) -> None:
        ranges = {"boxes": (boxes, len(_NAMES)), "digits": (digits, 6), "tries": (tries, 100)}
        for name, (value, most) in {**ranges, "max_actions": (max_actions, 1000)}.items():
            if not 1 <= value <= most:
                raise RecipeError(f"{name} is {value}: it goes from 1 to {most}.")
        self.names, self.digits, self.tries, self.max_actions = _NAMES[:boxes], digits, tries, max_actions
        self.instruction = "A box holds the code of the lock. Look into boxes and open the lock."

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw the code and its box."""
        super().reset(seed=seed, options=options)
        self.code = "".join(str(digit) for digit in self.np_random.integers(10, size=self.digits))
        self.place = self.names[int(self.np_random.integers(len(self.names)))]
        self.left, self.seen = self.tries, False
        return f"Boxes: {', '.join(self.names)}.", {}

    def step(self, action: str) -> Step:
        """Make a call or pass on a reply; raises ResetNeeded before the first reset."""
        _ = self.dynamics
        return super().step(action)

    @tool
    def look(self, box: str) -> Any:
        """Look into a box.

        Args:
            box: The name of a box.
        """
        if box not in self.names:
            return "There is no such box."
        self.seen = self.seen or box == self.place
        return f"Code: {self.code}" if box == self.place else "Empty."

    @tool
    def open(self, code: str) -> Any:
        """Open the lock.

        Args:
            code: The code.
        """
        if code == self.code:
            return self.end("Open.", 1.0, success=True)
        self.left -= 1
        return "Wrong code." if self.left else self.end("Wrong code. Locked.")

    def oracle(self) -> list[str]:
        """Look into the box with the note, if that has not been done, and open the lock."""
        return [called("look", box=self.place)] * (not self.seen) + [called("open", code=self.code)]
