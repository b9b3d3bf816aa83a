"""Rewards in addition to the environment's: functions of a whole trajectory, found by name.

    @reward("brief")
    def brief(trajectory, *, words: int = 50):
        '''-1 at the end of an episode whose thoughts are long.'''
        return {"long": -float(sum(len(turn.think.split()) for turn in trajectory.turns) > words)}

A recipe switches one on in `ragen.rewards.{name}`, a block with its options and a `weight`. The weighted parts are
added to the environment's reward, whose own weight is `ragen.rewards.environment`; they are in the return, in
everything that is computed from it (filter, advantages, statistics), and one by one in the metrics
(`reward/{name}/{part}`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragen_verl.errors import RecipeError
from ragen_verl.extensions import Registry, options_of
from ragen_verl.rollout.trajectory import Trajectory

__all__ = ["ENVIRONMENT", "REWARDS", "Parts", "Rewards", "reward"]

ENVIRONMENT = "environment"
"""The name of the environment's own reward among the parts."""

Parts = Mapping[str, float | Sequence[float]]
"""Name of a part -> one number, which belongs to the end of the episode, or a number for each turn."""

REWARDS: Registry[Callable[..., Parts]] = Registry("reward")


def reward(name: str) -> Callable[[Callable[..., Parts]], Callable[..., Parts]]:
    """Decorator: register a function `(trajectory, *, options) -> parts` as the reward `name`.

    It gets every finished `Trajectory` whose environment and engine did not fail, and runs in a thread.

    Raises:
        RecipeError: the name is taken or means the environment's reward, the options' annotations cannot be read, or an
            option is called `weight`, which every reward has.
    """
    if name == ENVIRONMENT:
        raise RecipeError(f"A reward cannot be called {name!r}, which is the environment's own: choose another name.")

    def register(function: Callable[..., Parts]) -> Callable[..., Parts]:
        if "weight" in options_of(function):
            raise RecipeError(f"The reward {name!r} has an option weight, which every reward has: leave it out.")
        return REWARDS.add(name, function)

    return register


@dataclass(frozen=True)
class Rewards:
    """The rewards of a recipe.

    Args:
        environment: the weight of the environment's own reward; with 0 the others replace it.
        functions: name -> weight, and the function with its options.
    """

    environment: float = 1.0
    functions: Mapping[str, tuple[float, Callable[[Trajectory], Parts]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.functions) or self.environment != 1

    def give(self, trajectory: Trajectory) -> None:
        """Fill `rewards` of every turn; a part for the whole episode goes to its last turn.

        Raises:
            ValueError: a function returned something else than named finite numbers, or not as many as there are turns.
        """
        turns = trajectory.turns
        if not turns:
            return
        given: dict[str, list[float]] = {ENVIRONMENT: [self.environment * turn.reward for turn in turns]}
        for name, (weight, function) in self.functions.items():
            found = function(trajectory)
            if not isinstance(found, Mapping):
                raise ValueError(f"the reward {name} returned {found!r}, and not a mapping of names to numbers")
            for part, value in found.items():
                values = _values(value, len(turns), f"the reward {name} returned {part} {value!r}")
                given[f"{name}/{part}"] = [weight * one for one in values]
        for place, turn in enumerate(turns):
            turn.rewards = {part: values[place] for part, values in given.items()}


def _values(value: Any, turns: int, said: str) -> list[float]:
    """One number for each turn."""
    try:
        values = [float(one) for one in value] if isinstance(value, Iterable) else [0.0] * (turns - 1) + [float(value)]
    except (TypeError, ValueError):
        raise ValueError(f"{said}, which is no number") from None
    if len(values) != turns:
        raise ValueError(f"{said}, which are {len(values)} numbers for {turns} turns")
    if not all(map(math.isfinite, values)):
        raise ValueError(f"{said}, which is not finite")
    return values
