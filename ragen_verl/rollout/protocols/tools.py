"""Calls of tools (`ragen_verl.env.tools`) in the form of the model's own chat template, or as text where it has none.

Loops for tools elsewhere execute calls inside thoughts, end the episode at a malformed call, or cut calls without a
word. Here nothing before the end of the thoughts is executed, every call gets exactly one result, and what cannot be
read is explained to the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from ragen_verl.env.calls import called, meant, said, unread
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.protocol import Parsed, Protocol, protocol

if TYPE_CHECKING:
    from ragen_verl.env.core import Env
    from ragen_verl.rollout.trajectory import Turn

__all__ = ["Results", "Tools"]

_FEWEST = 100


class Results(str):
    """The results of a turn's calls as text, for records and for models without a role for them.

    Attributes:
        parts: (the tool's name, its result) for each call of the turn, in order.
    """

    parts: tuple[tuple[str, str], ...]

    def __new__(cls, parts: Sequence[tuple[str, str]]) -> Results:
        """The text that shows these results."""
        made = super().__new__(cls, "\n".join(f"<tool_response>\n{text}\n</tool_response>" for _, text in parts))
        made.parts = tuple(parts)
        return made


@protocol("tools")
@dataclass(frozen=True, kw_only=True)
class Tools(Protocol):
    """Calls of the environment's tools. `max_actions_per_turn` is the number of calls of one reply that are made.

    Args:
        wire: the form of calls (`ragen_verl.rollout.tools.forms`). `auto` finds the one that the model's chat template
            writes, and takes `text` where it writes none.
        max_arguments: characters of one call's arguments; a call with more is refused.
        max_result: characters of one result; of a longer one the middle is left out, and the model is told so.
    """

    wire: str = "auto"
    max_arguments: Annotated[int, Ge(1)] = 10_000
    max_result: Annotated[int, Ge(_FEWEST)] = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.form_of(self.wire)

    @property
    def prefill(self) -> str:
        """The tag of the thoughts, where they are asked for."""
        return "<think>" if self.think else ""

    @property
    def form(self) -> str:
        """A call in the form for text."""
        return self.form_of(self.wire).example

    def form_of(self, name: str) -> Any:
        """The wire form of a name; raises RecipeError if there is none."""
        forms = import_module("ragen_verl.rollout.tools.form").FORMS
        return forms.find("text" if name == "auto" else name, "ragen.rollout.wire", others=("auto",))()

    def chat(self, tokenizer: Any, template_kwargs: Mapping[str, Any] | None = None) -> ChatTokens:
        """The ids around calls and results; for the arguments see `ChatTokens`."""
        return import_module("ragen_verl.rollout.tools.chat").ToolChat(tokenizer, self, template_kwargs)

    # -- what the model reads -----------------------------------------------------------------------------------------

    def tools(self, env: Env) -> list[dict[str, Any]]:
        """The schemas of the environment's tools.

        Raises:
            RecipeError: it has none.
        """
        if not env.tools:
            raise RecipeError(
                f"ragen.rollout.protocol is tools and {type(env).__name__} has no tools: use another protocol, or an "
                "environment with tools."
            )
        return list(env.tools)

    def system(self, env: Env) -> str:
        """The system prompt and the environment's policy."""
        return "\n\n".join(text for text in (self.system_prompt, env.policy.strip()) if text)

    def task(self, env: Env) -> str:
        """The instruction."""
        return env.instruction.strip()

    def turn(self, number: int, state: str, actions_left: int) -> str:
        """The first observation, as it is."""
        return state

    def message(self, turns: Sequence[Turn], state: str, actions_left: int) -> str:
        """The results of the last turn's calls, or the answer to its message, or why nothing could be read."""
        if not turns:
            return state
        last = turns[-1]
        parts, texts = list[tuple[str, str]](), list[str]()
        for place, action in enumerate(last.actions):
            name, result = meant(action).get("name"), self._result(last, place)
            if name is None:
                texts.append(result)
            else:
                parts.append((name, result))
        if not parts:
            return "\n".join(texts)
        parts[-1] = parts[-1][0], "\n\n".join([parts[-1][1], *texts])
        return Results(parts)

    def _result(self, turn: Turn, place: int) -> str:
        if place >= len(turn.executed):
            return f"This call was not made: a reply may have {self.max_actions_per_turn} calls at most."
        result = turn.infos[place].get("call", {}).get("result", turn.observation)
        left_out = len(result) - self.max_result
        if left_out <= 0:
            return result
        head, tail = result[: self.max_result // 2], result[len(result) - self.max_result // 2 :]
        return f"{head}\n[... {len(result) - len(head) - len(tail)} characters left out ...]\n{tail}"

    # -- what the model writes ----------------------------------------------------------------------------------------

    def parse(self, response_text: str) -> Parsed:
        """Read a response in the form that `wire` names."""
        return self.read(response_text, self.form_of(self.wire), self.think)

    def read(self, text: str, form: Any, opened: bool) -> Parsed:
        """Read a response; its actions are one for each call or broken call, or the reply itself if there is none.

        Args:
            text: the response.
            form: the wire form (`ragen_verl.rollout.tools.form.Form`).
            opened: whether the prompt opened the thoughts.
        """
        think, rest = form.think(text, opened)
        if rest is None:
            return Parsed(False, think, [unread(f"Your thoughts do not end: {form.thoughts[1]} ends them.")])
        around, blocks = form.read(rest)
        if not blocks and around:
            return Parsed(True, think, [said(around)])
        actions, complete = [], bool(blocks)
        for block in blocks:
            why = getattr(block, "why", None)
            action = "" if why else called(block[0], **block[1])
            if len(action) - len(block[0]) > self.max_arguments:
                why = f"The arguments have more than {self.max_arguments} characters."
            if why:
                complete = False
                shape = f" A call has this form:\n{form.example}" if form.name == "text" else ""
                action = unread(f"A call could not be read. {why}{shape}")
            actions.append(action)
        return Parsed(complete, think, actions or [unread("Your reply is empty.")])

    def answer(self, actions: Sequence[str], thoughts: str = "") -> str:
        """Canonical actions in the form that `wire` names."""
        from_text = import_module("ragen_verl.rollout.tools.form").Call
        found = [meant(action) for action in actions]
        calls = [from_text(one["name"], one["arguments"]) for one in found if "name" in one]
        texts = [one["message"] for one in found if "message" in one]
        before = f"{thoughts}</think>" if self.think else ""
        return before + "\n".join([*texts, *([self.form_of(self.wire).write(calls)] if calls else [])])
