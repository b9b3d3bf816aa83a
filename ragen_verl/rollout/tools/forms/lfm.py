"""A list of calls as Python writes them, `[look(box='red')]`, between two tokens, of LFM 2."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ragen_verl.rollout.tools.form import Call, Form, Unreadable, call_form
from ragen_verl.rollout.tools.literals import Literals

__all__ = ["Lfm"]

_NAME = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*")
_CONSTANTS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}


@call_form("lfm")
class Lfm(Form):
    """Calls with arguments by name; nothing is evaluated."""

    opens = "<|tool_call_start|>"
    closes = "<|tool_call_end|>"
    tokens = (opens, closes)

    def block(self, text: str, at: int) -> tuple[list[Call], int]:
        """The list decides where the block ends, so that a text in it may contain the tokens."""
        reader, calls = Literals(text, _CONSTANTS), list[Call]()
        at = reader.skip(at, "[")
        while not reader.follows(at, "]"):
            at = reader.skip(at, ",") if calls else at
            name = self._name(text, at)
            call, at = Call(name[1], {}), reader.skip(name.end(), "(")
            while not reader.follows(at, ")"):
                at = reader.skip(at, ",") if call.arguments else at
                key = self._name(text, at)
                if key[1] in call.arguments:
                    raise Unreadable(f"{key[1]} is there twice.")
                call.arguments[key[1]], at = reader.value(reader.skip(key.end(), "="))
            at = reader.skip(at, ")")
            calls.append(call)
        if not calls:
            raise Unreadable("The list has no call.")
        return calls, reader.skip(reader.skip(at, "]"), self.closes)

    @staticmethod
    def _name(text: str, at: int) -> re.Match[str]:
        if found := _NAME.match(text, at):
            return found
        raise Unreadable("A call is NAME(ARGUMENT=VALUE).")

    def write(self, calls: Sequence[Call]) -> str:
        """One list."""
        written = (
            f"{call.name}({', '.join(f'{key}={_written(one)}' for key, one in call.arguments.items())})"
            for call in calls
        )
        return f"{self.opens}[{', '.join(written)}]{self.closes}"


def _written(value: Any) -> str:
    if isinstance(value, str):
        marks = (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
        for mark, escaped in marks:
            value = value.replace(mark, escaped)
        return f"'{value}'"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_written(key)}: {_written(one)}' for key, one in value.items())}}}"
    return repr(value)
