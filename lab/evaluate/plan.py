"""The episodes of an evaluation: a recipe's held-out environments and seeds, each played by several samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ragen_verl.config import RagenConfig
from ragen_verl.env import Env, make
from ragen_verl.errors import RecipeError

__all__ = ["Episode", "closed_envs", "episodes"]


@dataclass(frozen=True)
class Episode:
    """One episode to play.

    Attributes:
        split: `val` or `generalisation`.
        env: the environment's name in the metrics.
        env_id: its id.
        kwargs: its arguments.
        seed: the seed of the initial state.
        rollout_index: the number of the sample of this initial state; it determines the transition randomness.
    """

    split: str
    env: str
    env_id: str
    kwargs: dict[str, Any]
    seed: int
    rollout_index: int

    @property
    def key(self) -> tuple[str, str, int, int]:
        """The key that identifies the episode in a plan."""
        return self.split, self.env, self.seed, self.rollout_index


def closed_envs(ragen: RagenConfig) -> dict[str, list[Env]]:
    """The environments of a recipe's held-out splits, built and closed, for the check of their tasks."""
    found: dict[str, list[Env]] = {}
    for name, split in ragen.splits.items():
        for one in split.envs if name != "train" else ():
            env = make(one.id, **one.kwargs_at(1))
            env.close()
            found.setdefault(name, []).append(env)
    return found


def episodes(ragen: RagenConfig, samples: int = 1, states: int | None = None) -> list[Episode]:
    """The episodes of a recipe's held-out splits, in the order in which training's own evaluation plays them.

    Args:
        ragen: the recipe's block.
        samples: the number of episodes of each initial state.
        states: the highest number of initial states of each split; None takes all.

    Raises:
        RecipeError: a number is below 1.
    """
    for name, value in (("samples", samples), ("states", states)):
        if value is not None and value < 1:
            raise RecipeError(f"{name} is {value} but has to be 1 or more.")
    found = []
    for name, split in ragen.splits.items():
        if name == "train":
            continue
        for place in range(split.groups if states is None else min(states, split.groups)):
            env = split.env_of(place)
            found += [
                Episode(name, env.tag, env.id, env.kwargs_at(1), split.seed + place, index) for index in range(samples)
            ]
    return found
