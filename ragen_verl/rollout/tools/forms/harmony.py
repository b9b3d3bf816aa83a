"""Messages with channels, of gpt-oss: ` to=functions.look<|channel|>commentary json<|message|>{...}<|call|>`.

Only the last message of a response counts: those on the channel `analysis` are thoughts, and a call ends the response.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragen_verl.rollout.tools.form import Broken, Call, Form, Unreadable, call_form, json_at, json_text

__all__ = ["Harmony"]

_NEXT, _BODY, _CALL, _END = "<|start|>assistant", "<|message|>", "<|call|>", "<|end|>"
_TO = re.compile(r"to=(\S+?)(?=[\s<]|$)")
_ANALYSIS = "<|channel|>analysis"


@call_form("harmony")
class Harmony(Form):
    """One call in a reply."""

    opens = " to=functions."
    closes = _CALL
    tokens = ("<|channel|>", "<|constrain|>", "<|start|>", _BODY, _CALL, _END)
    stops = (_CALL,)
    thoughts = (f"{_ANALYSIS}{_BODY}", _END)
    several = False

    def think(self, text: str, opened: bool) -> tuple[str, str | None]:
        """The messages of the channel `analysis`, and the last message; None if that is a thought."""
        *before, last = text.split(_NEXT)
        thoughts = [one.partition(_BODY)[2].removesuffix(_END) for one in [*before, last] if self._thought(one)]
        return "\n".join(thoughts).strip(), None if self._thought(last) else last

    @staticmethod
    def _thought(message: str) -> bool:
        head = message.partition(_BODY)[0]
        return _ANALYSIS in head and not _TO.search(head)

    def read(self, text: str) -> tuple[str, list[Call | Broken]]:
        """The last message: a call where it has a recipient."""
        head, found, body = text.partition(_BODY)
        to = _TO.search(head) if found or "<|channel|>" in head else None
        if not to:
            rest = (body if found else head).replace(_END, "").strip()
            return (rest, [Broken(f"{_CALL} stands alone.")]) if _CALL in rest else (rest, [])
        try:
            return "", [self._call(to[1], body)]
        except Unreadable as error:
            return "", [Broken(str(error))]

    @staticmethod
    def _call(to: str, body: str) -> Call:
        space, _, name = to.partition(".")
        if space != "functions" or not name:
            raise Unreadable("The recipient of a call is functions.NAME.")
        found, end = json_at(body, len(body) - len(body.lstrip()))
        if body[end:].strip() != _CALL:
            raise Unreadable(f"After the JSON object comes {_CALL}.")
        if not isinstance(found, dict):
            raise Unreadable("The arguments are a JSON object.")
        return Call(name, found)

    def write(self, calls: Sequence[Call]) -> str:
        """The first call, as the chat template writes it."""
        head = f"{self.opens}{calls[0].name}<|channel|>commentary json"
        return f"{head}{_BODY}{json_text(calls[0].arguments)}{_CALL}"
