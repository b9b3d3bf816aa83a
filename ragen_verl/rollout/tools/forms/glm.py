"""Pairs of `<arg_key>` and `<arg_value>` behind the name, of GLM 4.5; values have no types."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragen_verl.rollout.tools.form import Call, Form, Unreadable, call_form, json_text

__all__ = ["Glm"]

_NAME = re.compile(r"\s*([^<\s]+)\s*")
_PAIR = re.compile(r"<arg_key>([^<]+)</arg_key>\s*<arg_value>")
_END = "</arg_value>"
_BLANKS = re.compile(r"\s*")


@call_form("glm")
class Glm(Form):
    """A name, and a line for each key and each value, between `<tool_call>` tags."""

    opens = "<tool_call>"
    closes = "</tool_call>"
    tokens = (opens, closes)
    stops = ("<|observation|>",)

    def inside(self, text: str) -> list[Call]:
        """One function."""
        found = _NAME.match(text)
        if not found:
            raise Unreadable("The call begins with the function's name.")
        arguments: dict[str, str] = {}
        at = found.end()
        while at < len(text):
            pair = _PAIR.match(text, at)
            end = text.find(_END, pair.end()) if pair else -1
            if end < 0:
                raise Unreadable("Behind the name come <arg_key>KEY</arg_key> and <arg_value>VALUE</arg_value> alone.")
            if pair[1] in arguments:
                raise Unreadable(f"The argument {pair[1]} is there twice.")
            arguments[pair[1]] = text[pair.end() : end]
            at = _BLANKS.match(text, end + len(_END)).end()
        return [Call(found[1], arguments)]

    def write(self, calls: Sequence[Call]) -> str:
        """A line for the name, for each key and for each value."""
        return "\n".join(self._written(call) for call in calls)

    def _written(self, call: Call) -> str:
        values = {key: one if isinstance(one, str) else json_text(one) for key, one in call.arguments.items()}
        pairs = (f"<arg_key>{key}</arg_key>\n<arg_value>{value}{_END}\n" for key, value in values.items())
        return f"{self.opens}{call.name}\n{''.join(pairs)}{self.closes}"
