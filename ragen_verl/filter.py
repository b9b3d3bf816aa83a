"""Uncertainty filtering: which groups of a step the update sees (StarPO-S, arXiv 2504.20073, section 4).

A group's uncertainty is the spread of its members' raw returns, U(s0) = Std[R(tau)] over the N trajectories from one
initial state (sample standard deviation, as in RAGEN). Raw means before any normalisation: after normalising, every
group has a spread of 1 and the ranking is noise. Everything here is numpy and knows nothing of verl.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

DEFAULT_FRACTION = 0.25  # the share of groups StarPO-S keeps
ZERO = 1e-10  # a spread at or below it counts as none


@dataclass(frozen=True)
class Groups:
    """The groups of one batch in order of first appearance, and statistics of their raw returns (one value a group).

    `std` is -inf where fewer than two members count (nothing is known of the spread); `max`, `mean` and `sum` are nan
    where none does.
    """

    labels: tuple
    members: tuple[np.ndarray, ...]  # row indices that count, excluded ones left out
    std: np.ndarray
    max: np.ndarray
    mean: np.ndarray
    sum: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Selection:
    """What a filter decided about one batch.

    Attributes:
        groups: labels of the kept groups, in their order in the batch.
        rows: indices of the kept rows, ascending.
        dropped: indices of all other rows, ascending.
        scores: label of every group -> its score.
        metrics: RAGEN's names under `rollout/`.
    """

    groups: tuple
    rows: np.ndarray
    dropped: np.ndarray
    scores: dict
    metrics: dict[str, float]


def group_scores(returns: Sequence[float], groups: Sequence, excluded: Sequence[bool] | None = None) -> Groups:
    """Statistics of every group's raw returns.

    Args:
        returns: R(tau) of each row, in the environment's unit, shape (rows,).
        groups: the group's label of each row (anything hashable), shape (rows,).
        excluded: rows whose environment or engine failed; they count nowhere.

    Raises:
        ValueError: the lengths differ, or a return that counts is not finite.
    """
    values = np.asarray(returns, dtype=np.float64)
    out = np.zeros(len(values), dtype=bool) if excluded is None else np.asarray(excluded, dtype=bool)
    if not len(values) == len(groups) == len(out):
        raise ValueError(f"{len(values)} returns, {len(groups)} groups and {len(out)} exclusions are not one batch")
    if not np.isfinite(values[~out]).all():
        raise ValueError("a return is not a finite number")
    rows_of: dict = {}
    for row, label in enumerate(groups):
        rows_of.setdefault(label, []).append(row)
    members = tuple(np.array([row for row in rows if not out[row]], dtype=np.int64) for rows in rows_of.values())

    def each(statistic: Callable[[np.ndarray], float], least: int, otherwise: float) -> np.ndarray:
        return np.array([statistic(values[m]) if len(m) >= least else otherwise for m in members], dtype=np.float64)

    return Groups(
        labels=tuple(rows_of),
        members=members,
        std=each(_spread, 2, -np.inf),
        max=each(np.max, 1, np.nan),
        mean=each(np.mean, 1, np.nan),
        sum=each(np.sum, 1, np.nan),
    )


def _spread(values: np.ndarray) -> float:
    """Sample standard deviation; exactly 0 for equal values, which numpy's rounding of the mean can miss."""
    return 0.0 if (values == values[0]).all() else float(np.std(values, ddof=1))


def keep_count(fraction: float, groups: int) -> int:
    """k = int(fraction * P), and not one less where the product falls short of a whole number by rounding."""
    return math.floor(fraction * groups + 1e-9)


def top_k(scores: np.ndarray, fraction: float) -> np.ndarray:
    """Indices (ascending) of the k = int(fraction * P) highest scores, at least one; earlier wins a tie.

    Groups with a score of -inf, of which nothing is known, count in P and are never chosen.
    """
    scores = np.asarray(scores, dtype=np.float64)
    count = min(max(1, keep_count(fraction, len(scores))), len(scores))
    order = np.argsort(-scores, kind="stable")[:count]
    return np.sort(order[np.isfinite(scores[order])])


# name in a recipe -> (scores, value) -> indices of the kept groups
STRATEGIES: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {"top_k": top_k}


def select(
    returns: Sequence[float],
    groups: Sequence,
    excluded: Sequence[bool] | None = None,
    *,
    strategy: str = "none",
    value: float | None = None,
    min_members: int = 2,
) -> Selection:
    """Apply a filter to one batch of trajectories.

    Args:
        returns: raw return of each row, shape (rows,).
        groups: group label of each row, shape (rows,).
        excluded: rows that never enter the update.
        strategy: `none` or a name in `STRATEGIES`.
        value: the strategy's parameter.
        min_members: without a filter, groups with fewer members that count are left out while others remain: a
            group baseline over one return is that return itself. Use 1 where groups have one member by design.

    Returns:
        The selection; empty only where every row is excluded.
    """
    stats = group_scores(returns, groups, excluded)
    sizes = np.array([len(m) for m in stats.members], dtype=np.int64)
    alive = np.flatnonzero(sizes > 0)
    if strategy == "none":
        enough = np.flatnonzero(sizes >= min_members)
        kept = enough if len(enough) else alive
    else:
        choose = STRATEGIES[strategy]
        fraction = DEFAULT_FRACTION if value is None else value
        kept = choose(stats.std, fraction)
        if not len(kept):  # no group has two members that count: nothing to rank by, so the first ones are taken
            kept = alive[choose(np.zeros(len(alive)), fraction)]
    rows = np.sort(np.concatenate([stats.members[i] for i in kept])) if len(kept) else np.array([], dtype=np.int64)
    dropped = np.setdiff1d(np.arange(len(groups)), rows)
    return Selection(
        groups=tuple(stats.labels[i] for i in kept),
        rows=rows,
        dropped=dropped,
        scores=dict(zip(stats.labels, stats.std.tolist(), strict=True)),
        metrics=_metrics(stats, kept),
    )


def _metrics(stats: Groups, kept: np.ndarray) -> dict[str, float]:
    """RAGEN's names: means over the groups of each in-group statistic, before and after the filter."""
    metrics: dict[str, float] = {}
    for prefix, index in (("", np.arange(len(stats))), ("chosen_", kept)):
        for name in ("std", "max", "mean", "sum"):
            values = getattr(stats, name)[index]
            values = values[np.isfinite(values)]
            if not len(values):
                continue
            metrics[f"rollout/{prefix}in_group_reward_{name}"] = float(values.mean())
            if name != "sum":
                metrics[f"rollout/{prefix}in_group_{name}"] = float(values.mean())
    known = stats.std[np.isfinite(stats.std)]
    metrics["rollout/filter_kept_count"] = float(len(kept))
    metrics["rollout/filter_kept_ratio"] = len(kept) / len(stats) if len(stats) else 0.0
    metrics["rollout/filter_zero_count"] = float((known <= ZERO).sum())
    return metrics
