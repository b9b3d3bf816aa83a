"""JSON between tags: `<tool_call>{"name": ..., "arguments": ...}</tool_call>`, of Hermes, Qwen 2.5 and Qwen 3."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragen_verl.rollout.tools.form import Call, Form, Unreadable, call_form, json_at, json_text

__all__ = ["Hermes"]

_BLANKS = re.compile(r"\s*")


@call_form("hermes")
class Hermes(Form):
    """A JSON object with `name` and `arguments` between `<tool_call>` and `</tool_call>`."""

    opens = "<tool_call>"
    closes = "</tool_call>"
    tokens = (opens, closes)

    def block(self, text: str, at: int) -> tuple[list[Call], int]:
        """The object decides where the call ends, so that a text in it may contain the tags."""
        found, end = json_at(text, _BLANKS.match(text, at).end())
        end = _BLANKS.match(text, end).end()
        if not text.startswith(self.closes, end):
            raise Unreadable(f"After the JSON object comes {self.closes}.")
        if not isinstance(found, dict) or set(found) != {"name", "arguments"}:
            raise Unreadable('The JSON has to be an object with "name" and "arguments" alone.')
        if not isinstance(found["name"], str) or not isinstance(found["arguments"], dict):
            raise Unreadable('"name" has to be a text, and "arguments" an object.')
        return [Call(found["name"], found["arguments"])], end + len(self.closes)

    def write(self, calls: Sequence[Call]) -> str:
        """A line for each tag and each object."""
        return "\n".join(f"{self.opens}\n{json_text(call._asdict())}\n{self.closes}" for call in calls)
