"""Demonstrations: episodes played by the environments' oracles, through the rollout code and prompts of training.

The paper's baseline imitates a breadth-first search (RAGEN, arXiv 2504.20073, appendix C).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from ragen_lab.evaluate.messages import Message
from ragen_lab.evaluate.plan import Episode
from ragen_lab.evaluate.policies import Player, Policy, oracle_actions, random_actions
from ragen_lab.evaluate.runner import evaluate

from ragen_verl.config import RagenConfig
from ragen_verl.env import make
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.episode import Generation
from ragen_verl.rollout.protocol import Protocol

__all__ = ["SEED", "Demonstrator", "check_apart", "collect", "plan_of"]

SEED = 1_000_000_000
"""The seed of the first demonstration; recipes train and evaluate on lower seeds."""
_THOUGHTS = ("plan", "none")
_TRIES = 8  # initial states in which a plan is looked for


@dataclass(frozen=True)
class Demonstrator(Policy):
    """A policy that plays the oracle in a share of the turns and at random in the others, in the protocol's format.

    If the oracle knows no plan any more (a box in a corner), the turn is random too.

    Args:
        optimal: probability that a turn is the oracle's; in the others, known actions are drawn uniformly.
        thoughts: the text between the think tags. `plan`: the planned actions from this turn on, as many as an episode
            allows, of which the answer gives the first; in a random turn, its actions. `none`: no text.
    """

    optimal: float = 1.0
    thoughts: str = "plan"
    name = "demonstrator"

    def __post_init__(self) -> None:
        if not 0 <= self.optimal <= 1:
            raise RecipeError(f"The share of optimal turns is {self.optimal} but has to be from 0 to 1.")
        if self.thoughts not in _THOUGHTS:
            raise RecipeError(f"thoughts is {self.thoughts!r} but has to be one of {', '.join(_THOUGHTS)}.")

    def player(self, episode: Episode, protocol: Protocol) -> Player:
        """Plays as many actions in a turn as the protocol allows."""
        return _Player(self, protocol, np.random.default_rng([episode.seed, episode.rollout_index]))


class _Player(Player):
    def __init__(self, policy: Demonstrator, protocol: Protocol, rng: np.random.Generator) -> None:
        super().__init__()
        self._policy, self._protocol, self._rng = policy, protocol, rng

    async def respond(self, conversation: list[Message], max_tokens: int) -> Generation:
        return self.say(await asyncio.to_thread(self._text))

    def _text(self) -> str:
        protocol = self._protocol
        most = protocol.max_actions_per_turn if protocol.action_sep else 1
        skilled = self._rng.random() < self._policy.optimal
        plan = oracle_actions(self.env, protocol.budget(self.env)) if skilled else []
        plan = plan or random_actions(self.env, most, self._rng)
        thoughts = " ".join(plan) if protocol.think and self._policy.thoughts == "plan" else ""
        return protocol.prefill + protocol.answer(plan[:most], thoughts)


def plan_of(ragen: RagenConfig, count: int, seed: int, steps: int) -> list[Episode]:
    """The episodes to demonstrate: the recipe's training environments with the settings of its first step, in turn.

    Args:
        ragen: the recipe's block.
        count: the number of episodes; each has an initial state of its own.
        seed: the seed of the first episode.
        steps: the number of training steps, whose seeds are not used.

    Raises:
        RecipeError: a number is too small, or training or a held-out split uses one of the seeds.
    """
    if count < 1:
        raise RecipeError(f"{count} demonstrations are none: ask for 1 or more.")
    check_apart(ragen, range(seed, seed + count), steps)
    found = []
    for place in range(count):
        env = ragen.train.env_of(place % ragen.train.groups)
        found.append(Episode("demonstration", env.tag, env.id, env.kwargs_at(1), seed + place, 0))
    return found


def check_apart(ragen: RagenConfig, seeds: range, steps: int) -> None:
    """Refuse demonstrations of initial states that training or an evaluation uses.

    Raises:
        RecipeError: naming the split.
    """
    for name, (theirs, _) in ragen.seeds(steps).items():
        if seeds.start < theirs.stop and theirs.start < seeds.stop:
            raise RecipeError(
                f"The demonstrations have the seeds {seeds.start} to {seeds.stop - 1} and ragen.{name} "
                f"{theirs.start} to {theirs.stop - 1}: give demonstrations another --seed, {SEED} is far from all."
            )


def collect(
    ragen: RagenConfig,
    policy: Demonstrator,
    plan: list[Episode],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Play a plan.

    Returns:
        The records in the plan's order; the same arguments give the same messages.

    Raises:
        RecipeError: an environment has no oracle, or failed.
    """
    if policy.optimal:
        for one in {episode.env: episode for episode in reversed(plan)}.values():
            _check_oracle(one)
    with TemporaryDirectory() as folder:
        records = evaluate(ragen, policy, plan, Path(folder), lengths=(1, 1), settings={}, progress=progress)
    for record in records:
        if record["excluded"]:
            raise RecipeError(f"{record['env']}, seed {record['seed']}, could not be played: {record['error']}.")
    return records


def _check_oracle(episode: Episode) -> None:
    env = make(episode.env_id, **episode.kwargs)
    try:
        for seed in range(episode.seed, episode.seed + _TRIES):
            env.reset(seed=seed)
            if list(env.oracle()):
                return
    finally:
        env.close()
    raise RecipeError(
        f"{episode.env_id} has no oracle that knows a plan: give its class a method oracle(), or --optimal 0."
    )
