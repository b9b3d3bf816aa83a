"""Values written as in Python or in Gemma's calls: a strict reader for texts, numbers, lists and dicts.

Nothing is evaluated: it is a recursive reader with a bound on its depth.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragen_verl.rollout.tools.form import Unreadable

__all__ = ["Literals"]

_DEEPEST = 50
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_BLANKS = re.compile(r"\s*")
_STRING = {quote: re.compile(rf"{quote}((?:[^{quote}\\]|\\.)*){quote}", re.S) for quote in "'\""}
_ESCAPE = re.compile(r"\\(.)", re.S)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class Literals:
    """Reads values from a text.

    Args:
        text: the text.
        constants: word -> value.
        quote: what stands at both ends of a text, where nothing is escaped; "" takes Python's quotes and escapes.
        bare_keys: whether the keys of dicts stand without quotes.
    """

    def __init__(self, text: str, constants: Mapping[str, Any], quote: str = "", bare_keys: bool = False) -> None:
        self.text, self.constants, self.quote = text, constants, quote
        self._key = re.compile(r"[^\s:,{}\[\]<>]+") if bare_keys else None

    def skip(self, at: int, sign: str) -> int:
        """The place behind `sign`, perhaps with blanks around it; raises Unreadable if it is not there."""
        at = _BLANKS.match(self.text, at).end()
        if not self.text.startswith(sign, at):
            raise Unreadable(f"There should be {sign!r} at character {at + 1} of the call.")
        return _BLANKS.match(self.text, at + len(sign)).end()

    def follows(self, at: int, sign: str) -> bool:
        """Whether `sign` comes next."""
        return self.text.startswith(sign, _BLANKS.match(self.text, at).end())

    def value(self, at: int, depth: int = 0) -> tuple[Any, int]:
        """The value at a place, and the place behind it; raises Unreadable."""
        if depth > _DEEPEST:
            raise Unreadable("The values are nested too deeply.")
        if self.follows(at, "["):
            return self._list(self.skip(at, "["), depth)
        if self.follows(at, "{"):
            return self._dict(self.skip(at, "{"), depth)
        at = _BLANKS.match(self.text, at).end()
        if self.text.startswith(self.quote or ("'", '"'), at):
            return self._string(at)
        if found := _NUMBER.match(self.text, at):
            if found.end() - at > 1000:
                raise Unreadable("A number has too many digits.")
            return (float if found[1] or found[2] else int)(found[0]), found.end()
        for word, value in self.constants.items():
            if self.text.startswith(word, at):
                return value, at + len(word)
        raise Unreadable(f"There should be a value at character {at + 1} of the call.")

    def _string(self, at: int) -> tuple[str, int]:
        if self.quote:
            end = self.text.find(self.quote, at + len(self.quote))
            if end < 0:
                raise Unreadable("A text does not end.")
            return self.text[at + len(self.quote) : end], end + len(self.quote)
        found = _STRING[self.text[at]].match(self.text, at)
        if not found:
            raise Unreadable("A text does not end.")
        return _ESCAPE.sub(lambda one: _ESCAPES.get(one[1], one[1]), found[1]), found.end()

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while not self.follows(at, "]"):
            at = self.skip(at, ",") if values else at
            one, at = self.value(at, depth + 1)
            values.append(one)
        return values, self.skip(at, "]")

    def _dict(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        while not self.follows(at, "}"):
            at = self.skip(at, ",") if values else at
            key, at = self.key(at)
            if key in values:
                raise Unreadable(f"{key} is there twice.")
            values[key], at = self.value(self.skip(at, ":"), depth + 1)
        return values, self.skip(at, "}")

    def key(self, at: int) -> tuple[str, int]:
        """A key, and the place behind it."""
        if self._key is None:
            at = _BLANKS.match(self.text, at).end()
            if not self.text.startswith(("'", '"'), at):
                raise Unreadable(f"There should be a key at character {at + 1} of the call.")
            return self._string(at)
        found = self._key.match(self.text, at)
        if not found:
            raise Unreadable(f"There should be a key at character {at + 1} of the call.")
        return found[0], found.end()
