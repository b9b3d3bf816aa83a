"""Functions and parameters between tags, of Qwen 3.5 and newer and of Nemotron 3; values have no types."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragen_verl.rollout.tools.form import Call, Form, Unreadable, call_form, json_text

__all__ = ["QwenXml"]

_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>\s*")
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>")
_BLANKS = re.compile(r"\s*")


@call_form("qwen_xml")
class QwenXml(Form):
    """`<function=NAME>` and `<parameter=KEY>` with a value on lines of its own, between `<tool_call>` tags."""

    opens = "<tool_call>"
    closes = "</tool_call>"
    tokens = (opens, closes)

    def inside(self, text: str) -> list[Call]:
        """One function."""
        found = _FUNCTION.match(text)
        if not found:
            raise Unreadable("The call begins with <function=NAME>.")
        arguments: dict[str, str] = {}
        at = found.end()
        while not text.startswith("</function>", at):
            key = _PARAMETER.match(text, at)
            end = text.find("</parameter>", at)
            if not key or end < key.end():
                raise Unreadable("A function holds <parameter=KEY> ... </parameter> alone and ends with </function>.")
            if key[1] in arguments:
                raise Unreadable(f"The parameter {key[1]} is there twice.")
            arguments[key[1]] = text[key.end() : end].removeprefix("\n").removesuffix("\n")
            at = _BLANKS.match(text, end + len("</parameter>")).end()
        if text[at + len("</function>") :].strip():
            raise Unreadable("After </function> comes </tool_call>.")
        return [Call(found[1], arguments)]

    def write(self, calls: Sequence[Call]) -> str:
        """A line for each tag and each value."""
        return "\n".join(self._written(call) for call in calls)

    def _written(self, call: Call) -> str:
        values = {key: one if isinstance(one, str) else json_text(one) for key, one in call.arguments.items()}
        parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
        return f"{self.opens}\n<function={call.name}>\n{parameters}</function>\n{self.closes}"
