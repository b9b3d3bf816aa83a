"""`ragen.train`, `ragen.val`, `ragen.generalisation`: a split's environments, its numbers of groups and its seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

from ragen_verl.config.mixture import deal
from ragen_verl.config.schema import FILLED, Accepts, at_least
from ragen_verl.errors import RecipeError

__all__ = ["EnvGroups", "Split", "Stage", "check_disjoint"]

_WEIGHT = {"accepts": Accepts(lambda value: 0 <= value < inf, "a number of 0 or more")}


@dataclass(frozen=True)
class Stage:
    """A change of an environment from a training step on; it holds until a later stage changes the same value again.

    Args:
        step: the first step with the change, as numbered in the metrics: 1 is the first step of a run.
        weight: the new weight; None keeps the old one.
        kwargs: arguments that change; the others stay.
    """

    step: int = field(metadata=at_least(2))
    weight: float | None = field(default=None, metadata=_WEIGHT)
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvGroups:
    """One environment of a split.

    Args:
        id: the environment's id.
        groups: the number of groups that play it in every step; or
        weight: its share of the split's groups, relative to the weights of the others.
        kwargs: its arguments.
        name: its name in the metrics; None takes the id without its version, or the last part of an address.
        schedule: the changes of weight and arguments during training.
    """

    id: str = field(metadata=FILLED)
    groups: int | None = field(default=None, metadata=at_least(1))
    weight: float | None = field(default=None, metadata=_WEIGHT)
    kwargs: dict[str, Any] = field(default_factory=dict)
    name: str | None = field(default=None, metadata=FILLED)
    schedule: tuple[Stage, ...] = ()

    @property
    def tag(self) -> str:
        """The environment's name in the metrics; of an id, only the part after the last `/` or `:`."""
        return self.name or re.sub(r"-v\d+$", "", re.split(r"[:/]", self.id.rstrip(":/"))[-1])

    def weight_at(self, step: int) -> float:
        """The weight in a training step, or the number of groups where there are no weights."""
        changes = [one.weight for one in self.schedule if one.step <= step and one.weight is not None]
        return [self.groups if self.weight is None else self.weight, *changes][-1]

    def kwargs_at(self, step: int) -> dict[str, Any]:
        """The arguments in a training step."""
        merged = dict(self.kwargs)
        for one in self.schedule:
            if one.step <= step:
                merged.update(one.kwargs)
        return merged

    def check(self, path: str) -> None:
        """Refuse keys that contradict each other or would do nothing.

        Args:
            path: the environment's full name in the recipe.

        Raises:
            RecipeError: groups and weight are both given or both missing, or the schedule is wrong.
        """
        if (self.groups is None) == (self.weight is None):
            has = "neither groups nor a weight" if self.groups is None else "both groups and a weight"
            raise RecipeError(f"{path} has {has}: give it one of them.")
        for earlier, later in pairwise(self.schedule):
            if earlier.step >= later.step:
                raise RecipeError(
                    f"{path}.schedule has step {later.step} after step {earlier.step}: put its steps in order."
                )
        for i, stage in enumerate(self.schedule):
            if stage.weight is None and not stage.kwargs:
                raise RecipeError(f"{path}.schedule[{i}] changes nothing: give it a weight or kwargs.")
            if stage.weight is not None and self.groups is not None:
                raise RecipeError(
                    f"{path}.schedule[{i}].weight is {stage.weight:g} but the environment has groups, which stay as "
                    "they are: give every environment of the split a weight instead, and the split its groups."
                )
        if self.weight is not None and not any(self.weight_at(step) for step in (1, *_steps_of(self.schedule))):
            raise RecipeError(f"{path}.weight is never above 0, so it would do nothing: raise it or drop {self.id}.")


@dataclass(frozen=True)
class Split:
    """The environments of a split, and the seed of the first group.

    Training advances the seed by one with every group, so every step sees new initial states; a held-out split always
    plays the seeds `seed .. seed + groups - 1` (RAGEN's `seed.train` and `seed.val`).

    Args:
        envs: the environments, each with groups of its own or each with a weight.
        seed: the seed of the first group.
        groups: P, groups of one step. With weights it has to be given; else it is the sum of the environments' groups,
            and None stands for that sum.
    """

    envs: tuple[EnvGroups, ...] = field(metadata=FILLED)
    seed: int = field(metadata=at_least(0))
    groups: int | None = field(default=None, metadata=at_least(1))

    def __post_init__(self) -> None:
        if self.groups is None and all(env.groups for env in self.envs):
            object.__setattr__(self, "groups", sum(env.groups for env in self.envs))

    def seeds(self, steps: int = 1) -> range:
        """The seeds that `steps` steps use."""
        return range(self.seed, self.seed + steps * self.groups)

    def env_of(self, position: int, step: int = 1) -> EnvGroups:
        """The environment that the group at `position` (0 .. groups - 1) of a step plays."""
        if not 0 <= position < self.groups:
            raise IndexError(f"a step has {self.groups} groups only")
        return self.envs[deal(tuple(env.weight_at(step) for env in self.envs), self.groups, step)[position]]

    def check(self, path: str, *, held_out: bool) -> None:
        """Refuse environments whose groups cannot be counted, and a schedule where nothing may change.

        Args:
            path: the split's full name in the recipe.
            held_out: whether the split is played repeatedly in order to compare steps.

        Raises:
            RecipeError: with one sentence that says what to change.
        """
        for i, env in enumerate(self.envs):
            env.check(f"{path}.envs[{i}]")
            if held_out and env.schedule:
                raise RecipeError(
                    f"{path}.envs[{i}].schedule would change what a curve is measured on: drop it, only the "
                    "environments of ragen.train can have one."
                )
        weighted = [env for env in self.envs if env.weight is not None]
        if weighted and len(weighted) < len(self.envs):
            raise RecipeError(f"{path}.envs has some groups and some weights: give each environment the same of both.")
        if weighted and self.groups is None:
            raise RecipeError(f"{path}.groups is missing: with weights it is how many groups the environments share.")
        if not weighted and self.groups != (total := sum(env.groups for env in self.envs)):
            raise RecipeError(
                f"{path}.groups is {self.groups} but its environments have {total}: leave it out, it is for weights."
            )
        for step in (1, *sorted({step for env in self.envs for step in _steps_of(env.schedule)})):
            if not any(env.weight_at(step) for env in self.envs):
                raise RecipeError(f"{path}.envs has no weight above 0 in step {step}: leave one above 0.")


def _steps_of(schedule: Sequence[Stage]) -> list[int]:
    """The steps at which something changes."""
    return [stage.step for stage in schedule]


def check_disjoint(seeds: Mapping[str, tuple[range, str]]) -> None:
    """Refuse splits that have a seed in common, whatever environments they play.

    Environments that differ in a rule or in their symbols often have the same initial state for the same seed
    (FrozenLake with and without slip), so a comparison of ids and arguments would miss shared states.

    Args:
        seeds: name of each split -> its seeds, and a remark on their origin for the message ("" for none).

    Raises:
        RecipeError: naming the first two splits with a seed in common.
    """
    splits = list(seeds.items())
    for i, (name, (mine, remark)) in enumerate(splits):
        for other, (theirs, more) in splits[i + 1 :]:
            if mine.start < theirs.stop and theirs.start < mine.stop:
                raise RecipeError(
                    f"ragen.{name} would play the seeds {mine.start} to {mine.stop - 1}{remark} and ragen.{other} "
                    f"{theirs.start} to {theirs.stop - 1}{more}: move ragen.{name}.seed or ragen.{other}.seed so that "
                    "they do not overlap."
                )
