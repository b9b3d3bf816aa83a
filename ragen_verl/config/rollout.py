"""`ragen.rollout`: one episode."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from ragen_verl.config.schema import FILLED, PENALTY, POSITIVE, at_least

if TYPE_CHECKING:
    from ragen_verl.rollout.protocol import Protocol


@dataclass(frozen=True)
class Rollout:
    """One episode: the dialogue's budgets and words, and the limits on time and tokens."""

    max_turns: int = field(default=5, metadata=at_least(1))
    max_actions_per_turn: int = field(default=5, metadata=at_least(1))
    max_actions: int | None = field(default=None, metadata=at_least(1))
    think: bool = True
    action_sep: str = field(default="||", metadata=FILLED)
    format_penalty: float = field(default=-0.1, metadata=PENALTY)
    max_tokens: int = field(default=100, metadata=at_least(1))
    system_prompt: str = "You're a helpful assistant."
    explain_invalid: bool = False
    response_length: int = field(default=400, metadata=at_least(1))
    step_timeout: float = field(default=60.0, metadata=POSITIVE)
    env_threads: int = field(default=16, metadata=at_least(1))
    seeded_sampling: bool = True

    def protocol(self) -> Protocol:
        """The text protocol these settings describe."""
        from ragen_verl.rollout.protocol import Protocol

        names = {one.name for one in fields(Protocol)}
        return Protocol(**{one.name: getattr(self, one.name) for one in fields(self) if one.name in names})
