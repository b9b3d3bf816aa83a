"""Scores of a group: statistics of the raw returns, the entropies or the lengths of its trajectories.

A group's uncertainty is the sample standard deviation of the raw returns of its trajectories, U(s0) = Std[R(tau)] over
the N trajectories from one initial state (arXiv 2504.20073, section 4). Raw returns are those before any normalisation:
after it, every group has a standard deviation of 1 and the ranking is noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ragen_verl.filter.registry import ENTROPY, LENGTH, score

__all__ = ["ZERO_STD", "Groups", "group_scores", "mean", "std", "total", "variance"]

ZERO_STD = 1e-6
"""The returns of a group count as equal when their standard deviation is at most this.

Rewards are float32, and at the size of an episode's return (10) their rounding error is 1e-6. A smaller difference is
rounding: a group-relative advantage would magnify it, and a filter would keep a group that teaches nothing.
"""


@score("std", least=2)
def std(values: np.ndarray) -> float:
    """Sample standard deviation, as in RAGEN's code; exactly 0 for equal values, where numpy's rounding may differ."""
    return 0.0 if (values == values[0]).all() else float(np.std(values, ddof=1))


@score("variance", least=2)
def variance(values: np.ndarray) -> float:
    """Sample variance, as in RAGEN-2's text."""
    return std(values) ** 2


@score("mean", signed=True)
def mean(values: np.ndarray) -> float:
    """Mean return."""
    return float(np.mean(values))


@score("sum", signed=True)
def total(values: np.ndarray) -> float:
    """Sum of returns; RAGEN-2, table 9."""
    return float(np.sum(values))


score("entropy", measure=ENTROPY)(mean)
score("entropy_variance", measure=ENTROPY, least=2)(variance)
score("length", measure=LENGTH)(mean)


@dataclass(frozen=True)
class Groups:
    """The groups of one batch in order of first appearance, and statistics of their raw returns, one value per group.

    `std` is -inf where fewer than two trajectories count (the standard deviation is unknown); `max`, `mean` and `sum`
    are nan where no trajectory counts.
    """

    labels: tuple
    trajectories: tuple[np.ndarray, ...]  # trajectory indices that count, excluded ones left out
    std: np.ndarray
    max: np.ndarray
    mean: np.ndarray
    sum: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def each(self, values: np.ndarray, statistic: Callable, least: int = 1, otherwise: float = np.nan) -> np.ndarray:
        """A statistic of every group's trajectories, float64 of shape (groups,); `otherwise` where too few count."""
        return _each(self.trajectories, values, statistic, least, otherwise)


def group_scores(returns: Sequence[float], groups: Sequence, excluded: Sequence[bool] | None = None) -> Groups:
    """Statistics of every group's raw returns.

    Args:
        returns: R(tau) of each trajectory, in the environment's unit, shape (trajectories,).
        groups: the group's label of each trajectory (anything hashable), shape (trajectories,).
        excluded: trajectories whose environment or engine failed; they are ignored.

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
    trajectories = tuple(np.array([i for i in indices if not out[i]], dtype=np.int64) for indices in found.values())
    return Groups(
        labels=tuple(found),
        trajectories=trajectories,
        std=_each(trajectories, values, std, 2, -np.inf),
        max=_each(trajectories, values, np.max, 1, np.nan),
        mean=_each(trajectories, values, np.mean, 1, np.nan),
        sum=_each(trajectories, values, np.sum, 1, np.nan),
    )


def _each(trajectories: tuple, values: np.ndarray, statistic: Callable, least: int, otherwise: float) -> np.ndarray:
    return np.array([statistic(values[m]) if len(m) >= least else otherwise for m in trajectories], dtype=np.float64)
