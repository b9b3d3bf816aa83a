"""What of its past the prompt of a turn shows: everything, the last turns, or a summary.

Sources: RAGEN (arXiv 2504.20073) for the full history; RAGEN-2 (arXiv 2604.06268), the modes `limited_multi_turn` and
`single_turn` of its release, for the others: a training row per turn, the loss on that turn's response alone. There a
window can lose the task itself; here every prompt starts with the system message and the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragen_verl.rollout.chat import ChatTokens
    from ragen_verl.rollout.protocol import Protocol
    from ragen_verl.rollout.trajectory import Turn

CONTEXTS = ("full", "window", "single_turn")
SUMMARY_TURNS = 5
"""Turns that a summary lists if the recipe says nothing: the paper's episodes have no more."""


@dataclass(frozen=True)
class Context:
    """The rule that makes a turn's prompt from the turns before it.

    Args:
        kind: `full`, one conversation that grows; `window`, its last turns; `single_turn`, one user message.
        window: for `window`, turns a prompt shows, the one to be answered among them.
        summary_turns: for `single_turn`, past turns that are listed; earlier ones are only counted.
    """

    kind: str = "full"
    window: int | None = None
    summary_turns: int = SUMMARY_TURNS

    @property
    def row_per_turn(self) -> bool:
        """Whether every turn is a training row of its own; with the full history an episode is one row."""
        return self.kind != "full"

    def first(self, past: int) -> int:
        """Index of the oldest turn whose messages the prompt shows when `past` turns are over."""
        if self.kind == "full":
            return 0
        return past if self.kind == "single_turn" else max(0, past + 1 - self.window)


class Prompts:
    """The prompts of one episode. The responses in them are the sampled ids, never encoded again.

    Args:
        context: the rule.
        protocol, chat: texts; their ids.
        head: the task, symbols and actions (`Protocol.head`), which every prompt starts with.
    """

    def __init__(self, context: Context, protocol: Protocol, chat: ChatTokens, head: str) -> None:
        self.context, self.protocol, self.chat, self.head = context, protocol, chat, head
        self._users: list[str] = []  # the user message of each turn, without the head
        self._between: list[list[int]] = []  # ids between the response before each turn and its own
        self._opened: tuple[int, list[int]] = (-1, [])  # the turn that the prompt opens with, and the opening's ids

    def next(self, turns: Sequence[Turn], state: str, actions_left: int) -> list[int]:
        """All ids the engine is given for the turn after `turns`; to be called once a turn, in order."""
        first = self.context.first(len(turns))
        user = self._user(turns, state, actions_left)
        self._users.append(user)
        continued = first < len(turns)
        self._between.append(self.chat.turn(self.chat.closed(turns[-1].response_ids), user) if continued else [])
        if self._opened[0] != first:
            opening = self.protocol.opening(self.head, self._users[first])
            self._opened = first, self.chat.initial(self.protocol.system(), opening)
        ids = list(self._opened[1])
        for turn, between in zip(turns[first:], self._between[first + 1 :], strict=True):
            ids += turn.response_ids + between
        return ids

    def _user(self, turns: Sequence[Turn], state: str, actions_left: int) -> str:
        number = len(turns) + 1
        if not turns:
            return self.protocol.turn(number, state, actions_left)
        if self.context.kind == "single_turn":
            return self.protocol.summary_user(number, state, actions_left, turns, self.context.summary_turns)
        return self.protocol.next_user(number, state, actions_left, turns[-1].reward, turns[-1].valid)
