"""A rule applied to one batch of trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragen_verl.filter.scores import RETURN, SCORES, ZERO, Groups, group_scores
from ragen_verl.filter.strategies import STRATEGIES, Rule, rank, within_group


@dataclass(frozen=True)
class Selection:
    """What a filter decided about one batch.

    Attributes:
        groups: labels of the kept groups, in their order in the batch.
        kept: indices of the kept trajectories, int64, ascending.
        dropped: indices of all other trajectories, int64, ascending.
        scores: label of every group -> its score; -inf where it has none.
        metrics: RAGEN's names under `rollout/`, over all groups; those with `chosen_` over the kept ones.
    """

    groups: tuple
    kept: np.ndarray
    dropped: np.ndarray
    scores: dict
    metrics: dict[str, float]


def select(
    returns: Sequence[float],
    groups: Sequence,
    excluded: Sequence[bool] | None = None,
    *,
    rule: Rule | None = None,
    measures: Mapping[str, Sequence[float]] | None = None,
) -> Selection:
    """Apply a rule to one batch of trajectories.

    Args:
        returns: raw return of each trajectory, shape (trajectories,).
        groups: group label of each trajectory, shape (trajectories,).
        excluded: trajectories that never enter the update.
        rule: what to keep; every group without one.
        measures: `entropy` and `length` of each trajectory, shape (trajectories,), where a score is made of them.

    Returns:
        The selection. It is empty where every trajectory is excluded, and where the rule drops groups without a
        spread of returns and there are no others; never otherwise.

    Raises:
        ValueError: the columns have different lengths, or a value that counts is not finite.
    """
    rule = rule or Rule()
    stats = group_scores(returns, groups, excluded)
    columns = {RETURN: np.asarray(returns, dtype=np.float64)}
    for name, column in (measures or {}).items():
        columns[name] = np.asarray(column, dtype=np.float64)
        group_scores(column, groups, excluded)  # the same conditions as for returns
    score = SCORES[rule.score]
    scores = stats.each(columns[score.measure], score.statistic, score.least, -np.inf)
    chosen = _choose(stats, scores, rule)
    members = [stats.members[i] for i in chosen]
    if rule.strategy == "within_group":
        members = [m[within_group(columns[RETURN][m], rule.value)] for m in members]
    kept = np.sort(np.concatenate(members)) if members else np.array([], dtype=np.int64)
    return Selection(
        groups=tuple(stats.labels[i] for i in chosen),
        kept=kept,
        dropped=np.setdiff1d(np.arange(len(groups)), kept),
        scores=dict(zip(stats.labels, scores.tolist(), strict=True)),
        metrics=_metrics(stats, chosen, columns),
    )


def _choose(stats: Groups, scores: np.ndarray, rule: Rule) -> np.ndarray:
    """Indices of the kept groups, ascending."""
    sizes = np.array([len(m) for m in stats.members], dtype=np.int64)
    candidates = np.flatnonzero(sizes > 0)
    if rule.drop_zero_variance:
        candidates = candidates[stats.std[candidates] > ZERO]
    ranked = rule.strategy in STRATEGIES
    usable = np.isfinite(scores[candidates]) if ranked else sizes[candidates] >= rule.min_members
    if usable.any():
        candidates = candidates[usable]
    else:  # nothing to rank by, so the first ones are taken
        scores = np.zeros(len(scores))
    candidates = candidates[: rule.limit]
    if not ranked or not len(candidates):
        return candidates
    order = candidates[rank(scores[candidates], rule.largest)]
    return np.sort(order[STRATEGIES[rule.strategy](scores[order], rule, len(stats))])


def _metrics(stats: Groups, kept: np.ndarray, columns: Mapping[str, np.ndarray]) -> dict[str, float]:
    """RAGEN's names: means over the groups of each in-group statistic, before and after the filter."""
    metrics: dict[str, float] = {}

    def add(name: str, values: np.ndarray) -> None:
        values = values[np.isfinite(values)]
        if len(values):
            metrics[f"rollout/{name}"] = float(values.mean())

    spread = SCORES["std"].statistic
    others = {name: column for name, column in columns.items() if name != RETURN}
    for prefix, index in (("", np.arange(len(stats))), ("chosen_", kept)):
        for name in ("std", "max", "mean", "sum"):
            add(f"{prefix}in_group_reward_{name}", getattr(stats, name)[index])
            if name != "sum":
                add(f"{prefix}in_group_{name}", getattr(stats, name)[index])
        for measure, column in others.items():
            add(f"{prefix}in_group_{measure}_std", stats.each(column, spread, least=2)[index])
            add(f"{prefix}in_group_{measure}_mean", stats.each(column, np.mean)[index])
    known = stats.std[np.isfinite(stats.std)]
    metrics["rollout/filter_kept_count"] = float(len(kept))
    metrics["rollout/filter_kept_ratio"] = len(kept) / len(stats) if len(stats) else 0.0
    metrics["rollout/filter_zero_count"] = float((known <= ZERO).sum())
    metrics["rollout/informative_ratio"] = float((known > ZERO).sum()) / len(stats) if len(stats) else 0.0
    return metrics
