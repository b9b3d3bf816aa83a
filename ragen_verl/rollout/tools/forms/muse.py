"""`<atem:invoke>` with parameters between tags, in messages with a recipient, of Muse; values have no types."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragen_verl.rollout.tools.form import Broken, Call, Form, Unreadable, call_form, json_text

__all__ = ["Muse"]

_NEXT, _BODY = "<|start|>assistant", "<|message|>"
_INVOKE = re.compile(r'\s*<atem:invoke name="([^"<>]+)">\s*')
_PARAMETER = re.compile(r'<atem:parameter name="([^"<>]+)">')
_END, _DONE = "</atem:parameter>", "</atem:invoke>"
_BLANKS = re.compile(r"\s*")
_SELF = re.compile(r"\s*to=self\s*$")


@call_form("muse")
class Muse(Form):
    """Each call is a message of its own; messages to `self` are thoughts."""

    opens = "<atem:function_calls>"
    closes = "</atem:function_calls>"
    tokens = ("<|start|>", _BODY, "<|eom|>")
    thoughts = (f" to=self{_BODY}", "<|eom|>")

    def think(self, text: str, opened: bool) -> tuple[str, str | None]:
        """The messages to `self`, and what follows the last of them; None if nothing does."""
        messages = text.split(_NEXT)
        own = [place for place, one in enumerate(messages) if _SELF.match(one.partition(_BODY)[0])]
        thoughts = "\n".join(messages[place].partition(_BODY)[2].removesuffix("<|eom|>") for place in own).strip()
        if own and own[-1] == len(messages) - 1:
            return thoughts, None
        return thoughts, _NEXT.join(messages[own[-1] + 1 :] if own else messages)

    def read(self, text: str) -> tuple[str, list[Call | Broken]]:
        """Calls and texts of the messages, whose heads are left out."""
        bodies = (one.partition(_BODY) for one in text.replace("<|eom|>", "").split(_NEXT))
        return super().read("".join(body if found else head for head, found, body in bodies))

    def inside(self, text: str) -> list[Call]:
        """One call or more."""
        calls, at = list[Call](), 0
        while found := _INVOKE.match(text, at):
            call, at = Call(found[1], {}), found.end()
            while not text.startswith(_DONE, at):
                key = _PARAMETER.match(text, at)
                end = text.find(_END, at)
                if not key or end < key.end():
                    raise Unreadable("A call holds parameters alone.")
                if key[1] in call.arguments:
                    raise Unreadable(f"The parameter {key[1]} is there twice.")
                call.arguments[key[1]] = text[key.end() : end]
                at = _BLANKS.match(text, end + len(_END)).end()
            calls.append(call)
            at += len(_DONE)
        if not calls or text[at:].strip():
            raise Unreadable('The block holds <atem:invoke name="NAME"> alone.')
        return calls

    def write(self, calls: Sequence[Call]) -> str:
        """A message for each call, the first one without its opening, as the chat template writes them."""
        return f"<|eom|>{_NEXT}".join(self._written(call) for call in calls)

    def _written(self, call: Call) -> str:
        values = {key: one if isinstance(one, str) else json_text(one) for key, one in call.arguments.items()}
        inside = "".join(f'<atem:parameter name="{key}">{value}{_END}\n' for key, value in values.items())
        return f' to={call.name}{_BODY}{self.opens}\n<atem:invoke name="{call.name}">\n{inside}{_DONE}\n{self.closes}'
