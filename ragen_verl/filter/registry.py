"""The scores and the strategies of a filter by name: registries that other packages add to.

    @score("range", least=2)
    def value_range(values): ...

    @strategy("above")
    def above(candidates, *, bound: float = 0.5): ...

Options are the keyword-only parameters (`ragen_verl.extensions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ragen_verl.extensions import Registry, options_of

__all__ = [
    "ENTROPY",
    "LENGTH",
    "RETURN",
    "SCORES",
    "STRATEGIES",
    "Candidates",
    "Score",
    "Strategy",
    "read_by",
    "score",
    "strategy",
]

RETURN, ENTROPY, LENGTH = "return", "entropy", "length"
"""Measures of a trajectory: R(tau), the mean negative log-probability of its sampled tokens, and their number."""


@dataclass(frozen=True)
class Candidates:
    """The groups that a strategy chooses from, in the order of their ranks; ties keep the order of the batch.

    Attributes:
        scores: float64 (groups,), at least one, those of the first rank first. A strategy that reads no score gets the
            groups in the order of the batch and zeros.
        returns: raw returns of each group's trajectories that count, in the environment's unit: float64 (trajectories,)
            per group, each with at least one trajectory.
        total: P, the number of groups that a step generates before any dynamic sampling, candidates or not.
        largest: whether the highest score ranks first.
    """

    scores: np.ndarray
    returns: tuple[np.ndarray, ...]
    total: int
    largest: bool


@dataclass(frozen=True)
class Score:
    """A score: a number for a group, computed from its trajectories.

    Attributes:
        name: as in a recipe.
        function: (the values of the trajectories of a group, float64 of shape (trajectories,), at least `least` of
            them; options) -> the score, a finite number.
        measure: what the values are: `return`, `entropy` (nats) or `length` (tokens) of a trajectory.
        least: how many trajectories have to count; with fewer the group has no score.
        signed: whether a score can be negative; shares of such scores have no meaning.
    """

    name: str
    function: Callable[..., float]
    measure: str = RETURN
    least: int = 1
    signed: bool = False


@dataclass(frozen=True)
class Strategy:
    """A strategy: it selects the groups, or the trajectories of groups, that the update uses.

    Attributes:
        name: as in a recipe.
        function: (Candidates; options) -> a boolean mask, indices or a slice.
        selects: what is selected: `groups`, by their place in `scores`; or `trajectories`, by their place in the
            concatenated returns.
        ranks: whether it reads scores; only then do the recipe's `score` and `largest` have an effect.
        least: how many trajectories of a group have to count for it to be a candidate. If no group has as many, all
            groups are candidates.
        shares: whether it compares shares of scores, which then have to be 0 or more.
        can_be_empty: whether it can select nothing although there are candidates.
        check: called with the options that a recipe gives; raises RecipeError where two of them do not go together.
    """

    name: str
    function: Callable[..., Any]
    selects: Literal["groups", "trajectories"] = "groups"
    ranks: bool = True
    least: int = 1
    shares: bool = False
    can_be_empty: bool = True
    check: Callable[[Mapping[str, Any]], None] | None = None


SCORES: Registry[Score] = Registry("filter score")
"""Name in a recipe -> score."""

STRATEGIES: Registry[Strategy] = Registry("filter strategy")
"""Name in a recipe -> strategy."""


def score(name: str, **attributes: Any) -> Callable[[Callable], Callable]:
    """Decorator: register a function as the score `name`.

    Args:
        name: as in a recipe.
        attributes: `measure`, `least` and `signed` of `Score`.

    Raises:
        RecipeError: another score has the name.
    """

    def register(function: Callable) -> Callable:
        SCORES.add(name, Score(name, function, **attributes))
        return function

    return register


def strategy(name: str, **attributes: Any) -> Callable[[Callable], Callable]:
    """Decorator: register a function as the strategy `name`.

    Args:
        name: as in a recipe.
        attributes: `selects`, `ranks`, `least`, `shares`, `can_be_empty` and `check` of `Strategy`.

    Raises:
        RecipeError: another strategy has the name.
    """

    def register(function: Callable) -> Callable:
        STRATEGIES.add(name, Strategy(name, function, **attributes))
        return function

    return register


def read_by(function: Callable, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the function reads."""
    known = options_of(function)
    return {key: value for key, value in options.items() if key in known}
