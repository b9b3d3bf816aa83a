"""What a group is worth: statistics of its members' raw returns, or of how they were written.

A group's uncertainty is the spread of its members' raw returns, U(s0) = Std[R(tau)] over the N trajectories from one
initial state (arXiv 2504.20073, section 4; sample standard deviation, as in RAGEN). Raw means before any
normalisation: after normalising, every group has a spread of 1 and the ranking is noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

ZERO = 1e-10  # a standard deviation at or below it counts as none

RETURN, ENTROPY, LENGTH = "return", "entropy", "length"
"""What is measured of a trajectory: R(tau), the mean negative log-probability of its sampled tokens, their number."""


@dataclass(frozen=True)
class Score:
    """How a group's score is made.

    Attributes:
        measure: the column it is computed from: `return`, `entropy` or `length`.
        statistic: the members' values (float64, at least `least` of them) -> the score.
        least: how many members have to count; below it the group has no score.
        signed: whether a score can be negative, so that it is no mass.
    """

    measure: str
    statistic: Callable[[np.ndarray], float]
    least: int = 1
    signed: bool = False


def spread(values: np.ndarray) -> float:
    """Sample standard deviation; exactly 0 for equal values, which numpy's rounding of the mean can miss."""
    return 0.0 if (values == values[0]).all() else float(np.std(values, ddof=1))


def _variance(values: np.ndarray) -> float:
    return spread(values) ** 2


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values))


def _sum(values: np.ndarray) -> float:
    return float(np.sum(values))


# name in a recipe -> score; `variance` is RAGEN-2's paper, `std` its code
SCORES: dict[str, Score] = {
    "std": Score(RETURN, spread, least=2),
    "variance": Score(RETURN, _variance, least=2),
    "mean": Score(RETURN, _mean, signed=True),
    "sum": Score(RETURN, _sum, signed=True),
    "entropy": Score(ENTROPY, _mean),
    "entropy_variance": Score(ENTROPY, _variance, least=2),
    "length": Score(LENGTH, _mean),
}

SPREADS = tuple(name for name, score in SCORES.items() if score.least > 1)
"""The scores that need two members in a group."""


@dataclass(frozen=True)
class Groups:
    """The groups of one batch in order of first appearance, and statistics of their raw returns (one value a group).

    `std` is -inf where fewer than two members count (nothing is known of the spread); `max`, `mean` and `sum` are nan
    where none does.
    """

    labels: tuple
    members: tuple[np.ndarray, ...]  # trajectory indices that count, excluded ones left out
    std: np.ndarray
    max: np.ndarray
    mean: np.ndarray
    sum: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def each(self, values: np.ndarray, statistic: Callable, least: int = 1, otherwise: float = np.nan) -> np.ndarray:
        """A statistic of every group's members, float64 of shape (groups,); `otherwise` where too few count."""
        return _each(self.members, values, statistic, least, otherwise)


def group_scores(returns: Sequence[float], groups: Sequence, excluded: Sequence[bool] | None = None) -> Groups:
    """Statistics of every group's raw returns.

    Args:
        returns: R(tau) of each trajectory, in the environment's unit, shape (trajectories,).
        groups: the group's label of each trajectory (anything hashable), shape (trajectories,).
        excluded: trajectories whose environment or engine failed; they count nowhere.

    Raises:
        ValueError: the lengths differ, or a return that counts is not finite.
    """
    values = np.asarray(returns, dtype=np.float64)
    out = np.zeros(len(values), dtype=bool) if excluded is None else np.asarray(excluded, dtype=bool)
    if not len(values) == len(groups) == len(out):
        raise ValueError(f"{len(values)} returns, {len(groups)} groups and {len(out)} exclusions are not one batch")
    if not np.isfinite(values[~out]).all():
        raise ValueError("a return is not a finite number")
    found: dict = {}
    for index, label in enumerate(groups):
        found.setdefault(label, []).append(index)
    members = tuple(np.array([i for i in indices if not out[i]], dtype=np.int64) for indices in found.values())
    return Groups(
        labels=tuple(found),
        members=members,
        std=_each(members, values, spread, 2, -np.inf),
        max=_each(members, values, np.max, 1, np.nan),
        mean=_each(members, values, np.mean, 1, np.nan),
        sum=_each(members, values, np.sum, 1, np.nan),
    )


def _each(members: tuple, values: np.ndarray, statistic: Callable, least: int, otherwise: float) -> np.ndarray:
    return np.array([statistic(values[m]) if len(m) >= least else otherwise for m in members], dtype=np.float64)
