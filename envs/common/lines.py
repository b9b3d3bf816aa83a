"""What environments do with free text: sanitised lines, and actions such as search[..]."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

__all__ = ["parse_call", "sanitise"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_BLANKS = re.compile(r"\s+")
_CALL = re.compile(r"\s*(?:(\w{1,20})\s*\[|<(\w{1,20})>)")


def sanitise(text: Any, limit: int = 10_000) -> str:
    """Return `text` on one line: without control characters or lone surrogates, at most `limit` characters."""
    line = _BLANKS.sub(" ", _CONTROL.sub(" ", str(text)[: 4 * limit])).strip()
    return line if len(line) <= limit else line[: limit - 3] + "..."


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
