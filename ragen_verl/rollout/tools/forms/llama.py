"""A reply that is one JSON object, `{"name": ..., "parameters": {...}}`, of Llama 3.1 and 3.2: one call in a reply."""

from __future__ import annotations

from collections.abc import Sequence

from ragen_verl.rollout.tools.form import Broken, Call, Form, Unreadable, call_form, json_at, json_text

__all__ = ["Llama"]

_TAG = "<|python_tag|>"


@call_form("llama")
class Llama(Form):
    """The whole reply is the object; a reply that does not begin with a brace is a message."""

    opens = "{"
    closes = "}"
    tokens = (_TAG,)
    several = False

    def read(self, text: str) -> tuple[str, list[Call | Broken]]:
        """The object, or the message."""
        text = text.strip().removeprefix(_TAG).strip()
        if not text.startswith(self.opens):
            return text, []
        try:
            return "", [self._call(text)]
        except Unreadable as error:
            return "", [Broken(str(error))]

    @staticmethod
    def _call(text: str) -> Call:
        found, end = json_at(text, 0)
        if text[end:].strip():
            raise Unreadable("A reply with a call is one JSON object and nothing else.")
        if set(found) != {"name", "parameters"}:
            raise Unreadable('The object has "name" and "parameters" alone.')
        if not isinstance(found["name"], str) or not isinstance(found["parameters"], dict):
            raise Unreadable('"name" has to be a text, and "parameters" an object.')
        return Call(found["name"], found["parameters"])

    def write(self, calls: Sequence[Call]) -> str:
        """The object of the first call."""
        return f'{{"name": {json_text(calls[0].name)}, "parameters": {json_text(calls[0].arguments)}}}'
