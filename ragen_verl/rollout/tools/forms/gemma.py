"""`call:look{box:<|"|>red<|"|>}` between two tokens, of Gemma 4; the second ends the response: one call in a reply."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ragen_verl.rollout.tools.form import Call, Form, Unreadable, call_form, json_text
from ragen_verl.rollout.tools.literals import Literals

__all__ = ["Gemma"]

_QUOTE = '<|"|>'
_NAME = re.compile(r"\s*call:([^\s{}<>]+)\s*")
_CONSTANTS = {"true": True, "false": False, "null": None}


@call_form("gemma")
class Gemma(Form):
    """A name, and values in braces whose texts stand between tokens of their own."""

    opens = "<|tool_call>"
    closes = "<tool_call|>"
    tokens = (opens, closes, _QUOTE)
    stops = (closes,)
    thoughts = ("<|channel>", "<channel|>")
    several = False

    def block(self, text: str, at: int) -> tuple[list[Call], int]:
        """The braces decide where the call ends."""
        reader, found = Literals(text, _CONSTANTS, _QUOTE, bare_keys=True), _NAME.match(text, at)
        if not found:
            raise Unreadable("The call begins with call:NAME.")
        if not reader.follows(found.end(), "{"):
            raise Unreadable("Behind the name come the arguments in braces.")
        arguments, at = reader.value(found.end())
        return [Call(found[1], arguments)], reader.skip(at, self.closes)

    def write(self, calls: Sequence[Call]) -> str:
        """The first call."""
        return f"{self.opens}call:{calls[0].name}{_written(calls[0].arguments)}{self.closes}"


def _written(value: Any) -> str:
    if isinstance(value, str):
        return f"{_QUOTE}{value}{_QUOTE}"
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_written(one)}' for key, one in value.items())}}}"
    return json_text(value)
