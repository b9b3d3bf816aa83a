"""Gradient signal: does the task's gradient come from the groups whose returns differ? (RAGEN-2, arXiv 2604.06268)

The task gradient of a prompt is bounded by the standard deviation of its returns, |g_task(x)| <= C sqrt(Var[R | X=x]),
while the gradients of the entropy bonus and of KL do not depend on rewards. So where that standard deviation is small,
the regularisers move the weights. This module puts groups into buckets by it and turns measured norms into metrics. It
uses numpy only; the norms come from `ragen_verl.training.probes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragen_verl.names import GRADIENT_SIGNAL

__all__ = ["ALL", "Bucket", "split", "summarize"]

ALL = "all"
"""The name of the bucket that holds every row."""

_ZERO_NORM = 1e-6
"""Norms up to this are rounding, such as that of the KL gradient while the policy still equals its reference."""


@dataclass(frozen=True)
class Bucket:
    """Rows that are measured together.

    Attributes:
        name: `all`, or `bucket_1` (the smallest standard deviation) up to `bucket_<n>`, as RAGEN-2 names them.
        rows: indices into the batch, ascending.
        stds: sample standard deviation of the raw returns of each of its groups, shape (groups,).
    """

    name: str
    rows: tuple[int, ...]
    stds: tuple[float, ...]


def split(rows_of: Sequence[Sequence[int]], stds: Sequence[float], buckets: int) -> list[Bucket]:
    """Put groups into quantiles of their standard deviation; the first bucket is the whole batch.

    Groups with equal standard deviations share a bucket, so the result does not depend on their order; an empty bucket
    is left out. If all standard deviations are equal there is nothing to compare: only the whole batch is returned.

    Args:
        rows_of: the rows of each group.
        stds: sample standard deviation of each group's raw returns, shape (groups,).
        buckets: the highest number of quantiles.

    Raises:
        ValueError: a standard deviation is missing or not finite.
    """
    values = np.asarray(stds, dtype=np.float64)
    if len(values) != len(rows_of) or not np.isfinite(values).all():
        raise ValueError(f"{len(rows_of)} groups need as many finite standard deviations, not {list(stds)}")
    groups_of: dict[int, list[int]] = {}
    for group, value in enumerate(values):
        quantile = int((values < value).sum()) * min(buckets, len(values)) // len(values)
        groups_of.setdefault(quantile, []).append(group)
    named = [(f"bucket_{quantile + 1}", groups_of[quantile]) for quantile in sorted(groups_of)]
    chosen = [(ALL, list(range(len(values)))), *(named if len(named) > 1 else [])]
    return [
        Bucket(
            name,
            tuple(sorted(row for group in groups for row in rows_of[group])),
            tuple(values[groups].tolist()),
        )
        for name, groups in chosen
        if groups
    ]


def summarize(
    buckets: Sequence[Bucket], norms: Sequence[Mapping[str, float]], coefficients: Mapping[str, float]
) -> dict[str, float]:
    """Metrics of one measurement, under RAGEN-2's names where it has one.

    Args:
        buckets: the result of `split`.
        norms: for each bucket the norm of the gradient of `task` (the policy loss), `entropy` (mean token entropy) and,
            with a reference model, `kl` (mean KL estimate), each with coefficient 1 and averaged over the bucket.
        coefficients: weight of `entropy` and `kl` in the recipe's loss.

    Returns:
        `grad_norm/<bucket>/<component>`, `.../reward_std_{mean,min,max}`, `.../sample_count`, `.../sample_pct`;
        `.../signal_to_noise`: the task's norm divided by the regularisers' with the recipe's coefficients, where there
        are any (it is a lower bound, since their norms are added up); `grad_norm/<component>_high_over_low`: the norm
        of the highest bucket divided by that of the lowest; `grad_norm/<component>_rank_correlation`: Spearman's
        correlation over the buckets, if there are three or more. RAGEN-2 expects the last two to be large for `task`,
        and 1 and 0 for the others.
    """
    metrics: dict[str, float] = {}
    total = len(buckets[0].rows) if buckets else 0
    for bucket, found in zip(buckets, norms, strict=True):
        prefix = f"{GRADIENT_SIGNAL}/{bucket.name}"
        metrics |= {f"{prefix}/{component}": float(norm) for component, norm in found.items()}
        for name, statistic in (("mean", np.mean), ("min", np.min), ("max", np.max)):
            metrics[f"{prefix}/reward_std_{name}"] = float(statistic(bucket.stds))
        metrics[f"{prefix}/sample_count"] = float(len(bucket.rows))
        metrics[f"{prefix}/sample_pct"] = len(bucket.rows) / total
        noise = sum(abs(weight) * found.get(component, 0.0) for component, weight in coefficients.items())
        if noise > _ZERO_NORM:
            metrics[f"{prefix}/signal_to_noise"] = float(found["task"] / noise)
    parts = [found for bucket, found in zip(buckets, norms, strict=True) if bucket.name != ALL]
    if len(parts) < 2:
        return metrics
    for component in parts[0]:
        values = np.array([found[component] for found in parts])
        if values.max() <= _ZERO_NORM:
            continue
        if values[0] > _ZERO_NORM:
            metrics[f"{GRADIENT_SIGNAL}/{component}_high_over_low"] = float(values[-1] / values[0])
        if len(parts) > 2 and (correlation := _rank_correlation(values)) is not None:
            metrics[f"{GRADIENT_SIGNAL}/{component}_rank_correlation"] = correlation
    return metrics


def _rank_correlation(values: np.ndarray) -> float | None:
    """Spearman's correlation of the values with their positions; None where all values are equal."""
    ranks = (values[:, None] > values).sum(axis=1) + ((values[:, None] == values).sum(axis=1) - 1) / 2
    if (ranks == ranks[0]).all():
        return None
    return float(np.corrcoef(np.arange(len(values)), ranks)[0, 1])
