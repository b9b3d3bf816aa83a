"""Faults: single signs of a program replaced by others, as people mistake them."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["MODULES", "Fault", "faults", "source"]

MODULES = ("days", "intervals", "lists", "numerals", "sums", "words")
_SWAPS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+": "-",
    "-": "+",
    "*": "+",
    "//": "*",
    "%": "//",
    "+=": "-=",
    "-=": "+=",
    "and": "or",
    "or": "and",
    "min": "max",
    "max": "min",
    "True": "False",
    "False": "True",
}


@dataclass(frozen=True)
class Fault:
    """A sign and what stands in its place.

    Attributes:
        module: the name of the module.
        line, column: where the sign begins; lines count from 1.
        right, wrong: the sign of the original and the one in its place.
    """

    module: str
    line: int
    column: int
    right: str
    wrong: str

    def into(self, text: str) -> str:
        """A module's text with the fault. Faults of one module go in from its end."""
        lines = text.splitlines(keepends=True)
        line, end = lines[self.line - 1], self.column + len(self.right)
        lines[self.line - 1] = line[: self.column] + self.wrong + line[end:]
        return "".join(lines)


@cache
def source(name: str) -> str:
    """The text of a file of the package, without its ending `.py`."""
    return (files("ragen_envs.repair.almanac") / f"{name}.py").read_text("utf-8")


@cache
def faults(module: str) -> tuple[Fault, ...]:
    """Every fault of a module, in the order of its text; some change nothing that a case sees."""
    found = []
    for kind, text, (line, column), _, whole in tokenize.generate_tokens(io.StringIO(source(module)).readline):
        wrong = str(int(text) + 1) if kind == tokenize.NUMBER else _SWAPS.get(text)
        # a default, an annotation or a constant at the head of a file is no sign of a calculation
        if wrong and whole.startswith(" ") and not whole.lstrip().startswith("def "):
            found.append(Fault(module, line, column, text, wrong))
    return tuple(found)
