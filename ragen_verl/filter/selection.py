"""`select`: apply a filter's rule to one batch of trajectories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ragen_verl.filter.registry import RETURN, SCORES, STRATEGIES, Candidates, Strategy, read_by
from ragen_verl.filter.scores import ZERO_STD, Groups, group_scores, std
from ragen_verl.names import RETURN_EXCESS, RETURN_EXCESS_ERROR, ROLLOUT

__all__ = ["Rule", "Selection", "select"]


@dataclass(frozen=True)
class Rule:
    """The settings of a filter.

    Attributes:
        strategy: a name in `STRATEGIES`.
        options: options of the strategy and of the score, by name; an option that is left out has its default.
        score: a name in `SCORES`.
        largest: whether the highest score ranks first; otherwise the lowest.
        drop_zero_variance: groups with equal raw returns, or with an unknown standard deviation, are no candidates.
        min_trajectories: without a ranking, groups with fewer trajectories that count are left out while others remain:
            a group baseline over one return is that return itself. 1 where groups have one trajectory by design.
        total: P, the groups of a step before any dynamic sampling; None: those of the batch.
        limit: at most this many candidates, earlier ones first; None for all.
        cross_fit: the returns of one half of a group decide whether its other half is kept; the halves are the
            trajectories with an even and with an odd rollout index.
    """

    strategy: str = "none"
    options: Mapping[str, Any] = field(default_factory=dict)
    score: str = "std"
    largest: bool = True
    drop_zero_variance: bool = False
    min_trajectories: int = 2
    total: int | None = None
    limit: int | None = None
    cross_fit: bool = False


@dataclass(frozen=True)
class Selection:
    """The decision of a filter about one batch.

    Attributes:
        groups: labels of the groups that have a kept trajectory, in their order in the batch.
        kept: indices of the kept trajectories, int64, ascending.
        dropped: indices of all other trajectories, int64, ascending.
        scores: label of every group -> its score; -inf where it has none. With cross-fitting (label, parity of the
            rollout index) -> the score of that half, which decides about the other one.
        metrics: RAGEN's names under `rollout/`, over all groups; those with `chosen_` over the kept ones.
            `rollout/selected_return_excess` is the mean return of the kept groups minus that of all groups;
            `rollout/selected_return_excess_error` is its standard error if the choice does not depend on returns.
    """

    groups: tuple
    kept: np.ndarray
    dropped: np.ndarray
    scores: dict
    metrics: dict[str, float]


@dataclass(frozen=True)
class _Chosen:
    """The kept part of some groups: their places in `groups`, and the kept trajectories of each."""

    groups: Groups
    index: np.ndarray
    trajectories: list[np.ndarray]


def select(
    returns: Sequence[float],
    groups: Sequence,
    excluded: Sequence[bool] | None = None,
    *,
    rule: Rule | None = None,
    measures: Mapping[str, Sequence[float]] | None = None,
    rollout_indices: Sequence[int] | None = None,
) -> Selection:
    """Apply a rule to one batch of trajectories.

    Args:
        returns: raw return of each trajectory, shape (trajectories,).
        groups: group label of each trajectory, shape (trajectories,).
        excluded: trajectories that never enter the update.
        rule: the filter's settings; without one, every group is kept.
        measures: `entropy` and `length` of each trajectory, shape (trajectories,), where a score reads them.
        rollout_indices: number of each trajectory in its group, shape (trajectories,); for cross-fitting.

    Returns:
        The selection. It is empty where every trajectory is excluded, where the rule drops groups of equal returns and
        there are no others, and where the strategy selects nothing.

    Raises:
        ValueError: the columns have different lengths, a value that counts is not finite, the strategy returns
            something that is no selection of its candidates, or rollout indices are missing.
    """
    rule = rule or Rule()
    whole = group_scores(returns, groups, excluded)
    columns = {RETURN: np.asarray(returns, dtype=np.float64)}
    for name, column in (measures or {}).items():
        columns[name] = np.asarray(column, dtype=np.float64)
        group_scores(column, groups, excluded)  # the same conditions as for returns
    if rule.cross_fit:
        if rollout_indices is None or len(rollout_indices) != len(groups):
            raise ValueError("cross-fitting needs the rollout index of every trajectory")
        out = np.zeros(len(groups), dtype=bool) if excluded is None else np.asarray(excluded, dtype=bool)
        parity = np.asarray(rollout_indices, dtype=np.int64) % 2
        even, odd = (group_scores(returns, groups, out | (parity != half)) for half in (0, 1))
        folds = [(even, odd), (odd, even)]
    else:
        folds = [(whole, whole)]
    scores, parts = [], []
    for decides, learns in folds:
        scores.append(_scores(decides, columns, rule))
        parts.append(_choose(decides, learns, scores[-1], columns[RETURN], rule))
    kept = np.sort(
        np.concatenate([np.array([], dtype=np.int64), *(one for part in parts for one in part.trajectories)])
    )
    some = sorted({int(i) for part in parts for i in part.index})
    labels = [(label, half) for half in (0, 1) for label in whole.labels] if rule.cross_fit else whole.labels
    return Selection(
        groups=tuple(whole.labels[i] for i in some),
        kept=kept,
        dropped=np.setdiff1d(np.arange(len(groups)), kept),
        scores=dict(zip(labels, np.concatenate(scores).tolist(), strict=True)),
        metrics=_metrics(whole, parts, columns) | _excess(parts, columns[RETURN]),
    )


def _scores(groups: Groups, columns: Mapping[str, np.ndarray], rule: Rule) -> np.ndarray:
    score = SCORES[rule.score]
    options = read_by(score.function, rule.options)
    return groups.each(columns[score.measure], lambda values: score.function(values, **options), score.least, -np.inf)


def _choose(decides: Groups, learns: Groups, scores: np.ndarray, returns: np.ndarray, rule: Rule) -> _Chosen:
    """The groups and trajectories of `learns` that are kept, chosen by the scores and returns of `decides`."""
    chosen = STRATEGIES[rule.strategy]
    sizes = np.array([len(m) for m in decides.trajectories], dtype=np.int64)
    candidates = np.flatnonzero(sizes > 0)
    if rule.drop_zero_variance:
        candidates = candidates[decides.std[candidates] > ZERO_STD]
    usable = sizes[candidates] >= min(chosen.least, rule.min_trajectories)
    if chosen.ranks:
        usable &= np.isfinite(scores[candidates])
    if usable.any():
        candidates = candidates[usable]
    if not (chosen.ranks and usable.any()):  # nothing to rank by, so the first ones are taken
        scores = np.zeros(len(scores))
    candidates = candidates[: rule.limit]
    if len(candidates):
        candidates = candidates[_rank(scores[candidates], rule.largest)]
    kept = _kept(chosen, candidates, decides, learns, scores, returns, rule)
    index = sorted(i for i, mine in kept.items() if len(mine))
    return _Chosen(learns, np.array(index, dtype=np.int64), [kept[i] for i in index])


def _kept(
    chosen: Strategy,
    ranked: np.ndarray,
    decides: Groups,
    learns: Groups,
    scores: np.ndarray,
    returns: np.ndarray,
    rule: Rule,
) -> dict[int, np.ndarray]:
    """Place of each group that the strategy selects -> its kept trajectories."""
    if not len(ranked):
        return {}
    candidates = Candidates(
        scores=scores[ranked],
        returns=tuple(returns[decides.trajectories[i]] for i in ranked),
        total=len(decides) if rule.total is None else rule.total,
        largest=rule.largest,
    )
    found = chosen.function(candidates, **read_by(chosen.function, rule.options))
    if chosen.selects == "groups":
        return {int(i): learns.trajectories[i] for i in ranked[_indices(found, len(ranked), chosen.name)]}
    owner = np.repeat(ranked, [len(one) for one in candidates.returns])
    inside = np.concatenate([decides.trajectories[i] for i in ranked])
    places = _indices(found, len(inside), chosen.name)
    return {int(i): np.sort(inside[places[owner[places] == i]]) for i in ranked}


def _indices(found: Any, count: int, name: str) -> np.ndarray:
    """A strategy's selection from `count` things as distinct indices, int64."""
    if isinstance(found, slice):
        return np.arange(count)[found]
    found = np.asarray(found)
    if found.dtype == bool and found.shape == (count,):
        return np.flatnonzero(found)
    found = found.astype(np.int64) if not found.size else found
    inside = found.ndim == 1 and found.dtype.kind in "iu" and not ((found < 0) | (found >= count)).any()
    if not inside or len(np.unique(found)) < len(found):
        raise ValueError(
            f"the filter strategy {name} has to select by a mask of {count}, a slice, or different indices from 0 to "
            f"{count - 1}, but returned {found!r}"
        )
    return found.astype(np.int64)


def _rank(scores: np.ndarray, largest: bool) -> np.ndarray:
    """Indices from the first rank to the last, int64 of shape (groups,); earlier groups first in a tie."""
    return np.argsort(-scores if largest else scores, kind="stable")


def _metrics(whole: Groups, parts: Sequence[_Chosen], columns: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Means over the groups of each in-group statistic, before and after the filter, under RAGEN's names."""
    metrics: dict[str, float] = {}

    def add(name: str, values: np.ndarray) -> None:
        values = values[np.isfinite(values)]
        if len(values):
            metrics[f"{ROLLOUT}/{name}"] = float(values.mean())

    everything = [_Chosen(whole, np.arange(len(whole)), list(whole.trajectories))]
    others = {name: column for name, column in columns.items() if name != RETURN}
    for prefix, some in (("", everything), ("chosen_", parts)):
        for name in ("std", "max", "mean", "sum"):
            values = np.concatenate([getattr(part.groups, name)[part.index] for part in some])
            add(f"{prefix}in_group_reward_{name}", values)
            if name != "sum":
                add(f"{prefix}in_group_{name}", values)
        for measure, column in others.items():
            for name, statistic, least in (("std", std, 2), ("mean", np.mean, 1)):
                values = np.concatenate([part.groups.each(column, statistic, least)[part.index] for part in some])
                add(f"{prefix}in_group_{measure}_{name}", values)
    known = whole.std[np.isfinite(whole.std)]
    kept = sum(len(part.index) for part in parts) / len(parts)
    metrics[f"{ROLLOUT}/filter_kept_count"] = kept
    metrics[f"{ROLLOUT}/filter_kept_ratio"] = kept / len(whole) if len(whole) else 0.0
    metrics[f"{ROLLOUT}/filter_zero_count"] = float((known <= ZERO_STD).sum())
    metrics[f"{ROLLOUT}/informative_ratio"] = float((known > ZERO_STD).sum()) / len(whole) if len(whole) else 0.0
    return metrics


def _excess(parts: Sequence[_Chosen], returns: np.ndarray) -> dict[str, float]:
    """The mean return of the kept groups minus that of all groups, and its standard error for a random choice.

    Every group weighs the same; with cross-fitting every half does. The error is that of a mean of k out of n groups
    drawn without replacement, s sqrt(1/k - 1/n), and for trajectories left out of a group the same inside it.
    """
    everything = np.concatenate([part.groups.mean for part in parts])
    everything = everything[np.isfinite(everything)]
    kept = [
        (part.groups.trajectories[i], mine)
        for part in parts
        for i, mine in zip(part.index, part.trajectories, strict=True)
    ]
    if not kept or len(everything) < 2:
        return {}
    between = np.var(everything, ddof=1) * (1 / len(kept) - 1 / len(everything))
    within = sum(std(returns[all]) ** 2 * (1 / len(some) - 1 / len(all)) for all, some in kept) / len(kept) ** 2
    excess = np.mean([returns[some].mean() for _, some in kept]) - everything.mean()
    if not np.isfinite([excess, between, within]).all():
        return {}
    return {
        RETURN_EXCESS: float(excess),
        RETURN_EXCESS_ERROR: math.sqrt(max(0.0, between + within)),
    }
