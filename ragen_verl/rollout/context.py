"""Rollout contexts: what a prompt shows of past turns (all, the last ones, a summary, or a plugin's choice).

Sources: RAGEN (arXiv 2504.20073) for the full history; RAGEN-2 (arXiv 2604.06268), the modes `limited_multi_turn` and
`single_turn` of its release, for the others: they have a training row per turn, with the loss on that turn's response
only. In RAGEN-2 a window can lose the task itself; here every prompt starts with the system message and the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge

from ragen_verl.extensions import Registry, options_of
from ragen_verl.rollout.chat import opening

if TYPE_CHECKING:
    from ragen_verl.rollout.chat import ChatTokens
    from ragen_verl.rollout.protocol import Protocol
    from ragen_verl.rollout.trajectory import Turn

__all__ = ["CONTEXTS", "Context", "Full", "Prompts", "SingleTurn", "Window", "context"]


class Context:
    """The rule that makes a turn's prompt from the turns before it; in this base class a prompt shows none of them.

    A prompt is the system message, the task with the message of the first turn that it shows, and then responses and
    messages up to the turn to be answered. Your own context overrides `first`, `user` or both; its options are the
    keyword-only parameters of its constructor.

    Attributes:
        row_per_turn: whether every turn is a training row of its own. False means one row for an episode; it requires
            that `first` is always 0, so that each prompt continues the one before.
    """

    row_per_turn: ClassVar[bool] = True

    def first(self, past: int) -> int:
        """Index of the oldest turn whose messages the prompt shows when `past` turns are over, 0 to `past`."""
        return past

    def user(self, protocol: Protocol, turns: Sequence[Turn], state: str, actions_left: int) -> str:
        """The user message of the turn after `turns` (at least one): the reward of the last turn, and the state."""
        return protocol.message(turns, state, actions_left)


CONTEXTS: Registry[type[Context]] = Registry("rollout context")


def context(name: str) -> Callable[[type[Context]], type[Context]]:
    """Decorator: register a class as the rollout context `name` of `ragen.rollout.context`.

    Its options, the keyword-only parameters of its constructor, are keys of `ragen.rollout`.

    Raises:
        RecipeError: the name is taken, or the options' annotations cannot be read.
    """

    def decorate(kind: type[Context]) -> type[Context]:
        options_of(kind)
        return CONTEXTS.add(name, kind)

    return decorate


@context("full")
@dataclass(frozen=True, kw_only=True)
class Full(Context):
    """The full history: one growing conversation."""

    row_per_turn: ClassVar[bool] = False

    def first(self, past: int) -> int:
        """The first turn."""
        return 0


@context("window")
@dataclass(frozen=True, kw_only=True)
class Window(Context):
    """The last turns of the conversation.

    Args:
        window: the number of turns that a prompt shows, including the one to be answered.
    """

    window: Annotated[int, Ge(1)]

    def first(self, past: int) -> int:
        """The oldest turn inside the window."""
        return max(0, past + 1 - self.window)


@context("single_turn")
@dataclass(frozen=True, kw_only=True)
class SingleTurn(Context):
    """One user message, with a summary of the turns before.

    Args:
        summary_turns: the number of past turns that are listed, by default that of the paper's episodes; earlier turns
            are only counted.
    """

    summary_turns: Annotated[int, Ge(1)] = 5

    def user(self, protocol: Protocol, turns: Sequence[Turn], state: str, actions_left: int) -> str:
        """The user message with the summary instead of the last reward."""
        return protocol.summary_message(turns, state, actions_left, self.summary_turns)


class Prompts:
    """The prompts of one episode. The responses in them are the sampled ids, never encoded again.

    Args:
        context: the rule.
        protocol, chat: they make the texts, and the ids of texts.
        system, task, tools: the system message, the task and the schemas of tools, with which every prompt starts.
    """

    def __init__(
        self,
        context: Context,
        protocol: Protocol,
        chat: ChatTokens,
        system: str,
        task: str,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.context, self.protocol, self.chat, self.system, self.task = context, protocol, chat, system, task
        self._tools = (tools,) if tools else ()
        self._users: list[str] = []  # the user message of each turn, without the task
        self.shown_from = 1  # number of the oldest turn that the present prompt shows
        self._between: list[list[int]] = []  # ids between the response before each turn and its own
        self._opened: tuple[int, list[int]] = (-1, [])  # the turn that the prompt opens with, and the opening's ids

    def next(self, turns: Sequence[Turn], state: str, actions_left: int) -> list[int]:
        """All ids that the engine gets for the turn after `turns`; call it once for each turn, in order."""
        first = self.context.first(len(turns))
        user = self._user(turns, state, actions_left)
        self._users.append(user)
        self.shown_from = first + 1
        continued = first < len(turns)
        self._between.append(self.chat.after(turns[-1].response_ids, user) if continued else [])
        if self._opened[0] != first:
            self._opened = first, self.chat.initial(self.system, opening(self.task, self._users[first]), *self._tools)
        ids = list(self._opened[1])
        for turn, between in zip(turns[first:], self._between[first + 1 :], strict=True):
            ids += turn.response_ids + between
        return ids

    @property
    def user(self) -> str:
        """The last message of the present prompt, without the task."""
        return self._users[-1]

    def _user(self, turns: Sequence[Turn], state: str, actions_left: int) -> str:
        if not turns:
            return self.protocol.message(turns, state, actions_left)
        return self.context.user(self.protocol, turns, state, actions_left)
