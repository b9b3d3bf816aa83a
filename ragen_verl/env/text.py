"""Common parts of free-text environments: a space of any text, sanitised lines, and actions such as search[..]."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cached_property
from typing import Any

from gymnasium.spaces import Text

from ragen_verl.env.core import Env

__all__ = ["AnyText", "FreeTextEnv", "encodable", "parse_call", "sanitise"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_BLANKS = re.compile(r"\s+")
_CALL = re.compile(r"\s*(?:(\w{1,20})\s*\[|<(\w{1,20})>)")


class AnyText(Text):
    """Texts of any characters, since names and passages are not known in advance. Samples are printable."""

    def contains(self, x: Any) -> bool:
        """Tell whether `x` is a text within the length limit."""
        return isinstance(x, str) and len(x) <= self.max_length


class FreeTextEnv(Env):
    """An environment whose actions and observations are any text."""

    @cached_property
    def action_space(self) -> AnyText:  # type: ignore[override]
        """Any text; `step` also takes longer texts."""
        return AnyText(10_000, min_length=0, charset=self.charset)

    @cached_property
    def observation_space(self) -> AnyText:  # type: ignore[override]
        """Any text."""
        return AnyText(10**7, min_length=0, charset=self.charset)


def sanitise(text: Any, limit: int = 10_000) -> str:
    """Return `text` on one line: without control characters or lone surrogates, at most `limit` characters."""
    line = _BLANKS.sub(" ", _CONTROL.sub(" ", str(text)[: 4 * limit])).strip()
    return line if len(line) <= limit else line[: limit - 3] + "..."


def encodable(text: str) -> str:
    """Return `text` with "?" for lone surrogates, which neither UTF-8 nor a tokenizer accepts."""
    return text.encode("utf-8", "replace").decode()


def parse_call(action: Any, names: Container[str]) -> tuple[str, str] | None:
    """Return (name, argument) of an action such as "search[red shoes]" or "<search>red shoes</search>", else None.

    The name is read in any case and must be one of `names`. The argument ends at the last bracket or the closing tag,
    which must end the text; it is returned sanitised and may contain brackets. The time is linear in the length.
    """
    head = _CALL.match(action) if isinstance(action, str) else None
    if head is None:
        return None
    name = (head[1] or head[2]).lower()
    body, end = action[head.end() :].rstrip(), "]" if head[1] else f"</{name}>"
    if name not in names or body[-len(end) :].lower() != end:
        return None
    return name, sanitise(body[: -len(end)])
