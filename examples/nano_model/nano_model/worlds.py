"""The environments the nano model is made from, their shares, and the seeds each purpose may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Demonstrations draw seeds from 1,000,000 up and the evaluation in `evaluate.py` from 500,000 up, so that neither meets
# the seeds of a training (10,000 up) or of its held-out evaluation (123 up).
DEMONSTRATION_SEEDS = 1_000_000
EVALUATION_SEEDS = 500_000


@dataclass(frozen=True)
class World:
    """One environment with its arguments.

    Args:
        name: how tables call it.
        env_id, kwargs: what `ragen_verl.make` takes.
        share: part of the demonstrated episodes that are played here.
        single_turn: one turn of one action, as in the bandit.
    """

    name: str
    env_id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    share: float = 0.0
    single_turn: bool = False

    @property
    def budgets(self) -> dict[str, int]:
        """The protocol's budgets here."""
        return {"max_turns": 1, "max_actions_per_turn": 1} if self.single_turn else {}


WORLDS = (
    World("FrozenLake", "FrozenLake-v0", {"success_rate": 1.0}, share=0.50),
    World("FrozenLake, frozen 0.9", "FrozenLake-v0", {"success_rate": 1.0, "frozen": 0.9}, share=0.03),
    World("FrozenLake, slippery", "FrozenLake-v0", share=0.04),
    World("Sokoban", "Sokoban-v0", share=0.33),
    World("Bandit", "Bandit-v0", share=0.04, single_turn=True),
    World("BanditTest", "BanditTest-v0", share=0.02, single_turn=True),
    World("Bandit, train pairs", "Bandit-v0", {"split": "train"}, share=0.03, single_turn=True),
    World("Bandit, test pairs", "Bandit-v0", {"split": "test"}, share=0.01, single_turn=True),
)
