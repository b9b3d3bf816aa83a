"""The ids around calls of tools: the chat template renders tools and results, and the sampled ids stay as they are.

Which form a template writes is found by rendering a call with sentinel texts and reading it with every form. The ids
between a call and the next response are those that the template writes after such a call. That they do not depend on
the number of calls is checked when the chat is made, so nothing that was sampled is ever rendered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragen_verl.errors import RecipeError
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.protocol import Parsed
from ragen_verl.rollout.protocols.tools import Results, Tools
from ragen_verl.rollout.tools.form import FORMS, Call, Form, listing

__all__ = ["ToolChat"]

_USER, _VALUE, _RESULT = "sentineluser", "sentinelvalue", "sentinelresult{}end"
_CALL = Call("sentineltool", {"key": _VALUE})
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": _CALL.name,
        "description": "A tool.",
        "parameters": {
            "type": "object",
            "properties": {"key": {"type": "string", "description": "A text."}},
            "required": ["key"],
        },
    },
}
_MOST = 3
"""Calls and results in the conversations that are tried."""


class ToolChat(ChatTokens):
    """The ids of conversations with tools, for one tokenizer and one protocol; for the arguments see `ChatTokens`.

    Attributes:
        form: the wire form of calls.
        rendered: whether the template renders tools and results; otherwise they are texts of messages.
        several: whether the template can show more than one call of a reply.
        call_end_id: the id that ends a response with calls.
        stop_ids: ids that the engine has to stop at beside the model's own.

    Raises:
        RecipeError: the template cannot be continued token by token, or does not write the form that is asked for.
    """

    def __init__(self, tokenizer: Any, protocol: Tools, template_kwargs: Mapping[str, Any] | None = None) -> None:
        super().__init__(tokenizer, protocol, template_kwargs)
        self.protocol = protocol
        self._header, self._after = "", self._after.removesuffix(self._header)  # the model may begin with a call
        self.opened = self._after.rstrip().endswith("<think>") or bool(protocol.prefill)
        self.form, self.several = self._found(protocol.wire)
        self.rendered = self.form.name != "text"
        self.call_end_id, self._end = self.end_of_turn_id, self._names[self.end_of_turn_id]
        if self.rendered and self.form.stops:
            self._end = self.form.stops[0]
            self.call_end_id = self.tokenizer.convert_tokens_to_ids(self._end)
        self.stop_ids = () if self.call_end_id in self.eos_ids else (self.call_end_id,)
        self.eos_ids += self.stop_ids
        shown = {*self.form.tokens, *self.form.thoughts}
        self._hidden = {index for index, text in self._special.items() if text not in shown}
        if self.rendered:
            self._check()

    # -- the ids ------------------------------------------------------------------------------------------------------

    def initial(self, system: str, user: str, tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Ids of the opening with the tools, whose texts cannot become control tokens."""
        tools = self._plain(list(tools))
        if self.rendered or not tools:
            return super().initial(system, user, tools)
        told = "\n\n".join(
            part for part in (self._disarm(system), listing(tools, self.protocol.max_actions_per_turn)) if part
        )
        return self._encode(self._render(self._opening(told, self._disarm(user)))) + self._prefill_ids

    def after(self, response: Sequence[int], user: str) -> list[int]:
        """Ids between a response and the next one: results of calls as the template shows them, or a user message."""
        if not (self.rendered and isinstance(user, Results)):
            return super().after(response, user)
        parts = [(self._disarm(name), self._disarm(text)) for name, text in user.parts]
        if not self.several:
            parts = [(parts[0][0], "\n".join(text for _, text in parts))]
        text = self._tail(parts, len(parts))
        ids = self._encode(text)
        closed = bool(response) and response[-1] == self.call_end_id
        return ids[ids.index(self.call_end_id) + 1 if closed else 0 :] + self._prefill_ids

    def parse(self, text: str, protocol: Any) -> Parsed:
        """Read a response in the model's form."""
        return protocol.read(text, self.form, self.opened)

    def shown(self, user: str) -> str:
        """A message as the model reads it; of results the texts in them."""
        if isinstance(user, Results):
            return str(Results([(name, self._disarm(text)) for name, text in user.parts]))
        return super().shown(user)

    # -- the template -------------------------------------------------------------------------------------------------

    def _plain(self, value: Any) -> Any:
        """A schema with its texts disarmed."""
        if isinstance(value, dict):
            return {self._plain(key): self._plain(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._plain(one) for one in value]
        return self._disarm(value) if isinstance(value, str) else value

    def _with_calls(self, names: Sequence[str], results: Sequence[str]) -> str:
        """A conversation with calls and their results, up to the generation prompt."""
        calls = [
            {"type": "function", "id": f"sentinel{place}", "function": {"name": name, "arguments": _CALL.arguments}}
            for place, name in enumerate(names)
        ]
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": _USER},
            {"role": "assistant", "content": "", "tool_calls": calls},
        ]
        for place, text in enumerate(results):
            name = names[min(place, len(names) - 1)]
            messages.append({"role": "tool", "name": name, "content": text, "tool_call_id": f"sentinel{place}"})
        return self._render(messages, [_TOOL])

    def _found(self, wire: str) -> tuple[Form, bool]:
        """The form that the template writes, and whether with several calls in a reply."""
        shown: dict[int, str] = {}
        for count in range(1, _MOST + 1):
            try:
                shown[count] = self._with_calls([_CALL.name] * count, [_RESULT.format(0)])
            except Exception:  # a template may refuse with any error: it knows no tools, or one call in a reply
                break
        for name, kind in FORMS.items():
            if name != "text" and wire in ("auto", name) and shown:
                form = kind()
                read = {count: self._reads(form, text, count) for count, text in shown.items()}
                if read[1]:
                    return form, form.several and len(read) == _MOST and all(read.values())
        if wire not in ("auto", "text"):
            raise RecipeError(
                f"ragen.rollout.wire is {wire} and the model's chat template does not write calls in this form: set "
                "auto, or text, which needs no template."
            )
        return FORMS["text"](), True

    def _reads(self, form: Form, text: str, count: int) -> bool:
        """Whether a rendered reply with `count` calls is read as these."""
        user = text.partition(_USER)[2]
        reply, found, after = user.rpartition(_VALUE)
        ends = [after.find(end) for end in form.stops or (self._names[self.end_of_turn_id],)]
        if not found or user.count(_VALUE) != count or max(ends) < 0 or _TOOL["function"]["name"] not in reply:
            return False
        asked = self._render([{"role": "user", "content": _USER}], [_TOOL]).partition(_USER)[2]
        asked = asked.rstrip().removesuffix("<think>") if asked.rstrip().endswith("<think>") else asked
        same = next((place for place, (a, b) in enumerate(zip(user, asked, strict=False)) if a != b), len(asked))
        reply = user[same : len(reply) + len(_VALUE) + min(end for end in ends if end >= 0)]
        if form.closes in form.stops:
            reply += form.closes
        _, rest = form.think(reply, False)
        return rest is not None and form.read(rest) == ("", [_CALL] * count)

    def _tail(self, parts: Sequence[tuple[str, str]], count: int) -> str:
        """What the template writes from the end of a reply with `count` calls on, where these are the results."""
        names = [name for name, _ in parts][:count] or [_CALL.name]
        names += names[-1:] * (count - len(names))
        text, place = self._with_calls(names, [text for _, text in parts]), -1
        for _ in range(count):
            place = text.index(_VALUE, place + 1)
        return text[text.index(self._end, place) :]

    def _check(self) -> None:
        """Refuse a template that writes something else after a call the more calls or results there are."""
        name = _CALL.name
        tails = {}
        try:
            for results in range(1, _MOST + 1 if self.several else 2):
                parts = [(name, _RESULT.format(place)) for place in range(results)]
                counts = range(1, _MOST + 1) if self.several else (1,)
                tails[results] = {self._tail(parts, count) for count in counts}
        except Exception as error:
            raise RecipeError(f"The chat template cannot show results of tools ({error}); {_ADVICE}") from error
        whole = all(
            text.count(_RESULT.format(place)) == 1
            for many, found in tails.items()
            for text in found
            for place in range(many)
        )
        if not whole or any(len(found) != 1 for found in tails.values()):
            raise RecipeError(f"The chat template shows results differently after several calls; {_ADVICE}")


_ADVICE = "set ragen.rollout.wire to text, which needs no template, or another chat template."
