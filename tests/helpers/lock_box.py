"""A small environment with tools for tests: look into boxes for a code, and open the lock with it."""

from __future__ import annotations

from typing import Literal

from ragen_verl import ToolEnv, ToolError, tool
from ragen_verl.env.tools import called

Box = Literal["red", "green", "blue"]


class LockBox(ToolEnv):
    instruction = "One of three boxes holds a code. Open the lock with it."
    policy = "Call one function at a time."

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.code = str(self.np_random.integers(10, 100))
        self.place = ("red", "green", "blue")[int(self.np_random.integers(3))]
        self.told = 0
        return "The boxes are red, green and blue.", {}

    @tool
    def look(self, box: Box) -> str:
        """Look into a box.

        Args:
            box: Which box.
        """
        self.told += 1
        return f"A note: {self.code}." if box == self.place else "It is empty."

    @tool
    def open(self, code: str, *, tries: int = 1):
        """Open the lock.

        Args:
            code: The code
                of two digits.
            tries: How often to try.
        """
        if not code.isdecimal():
            raise ToolError("A code has two digits.")
        if code != self.code:
            return f"Wrong, {tries} times.", -0.1
        return self.end("It opens.", 1.0, success=True)

    def message(self, text):
        return self.end("Bye.") if text == "bye" else f"You said {len(text)} letters."

    def oracle(self):
        return [called("look", box=self.place), called("open", code=self.code)]
