"""Environment metrics of a batch of trajectories, under RAGEN's names (`train/...` and `val-env/...`).

A mean is taken over the trajectories that report the metric, not over all of them: an environment that has no such
number, or an episode that ended before it could report one, does not pull the mean to 0. Excluded trajectories
(environment or engine failed) are counted and enter nothing else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from ragen_verl.rollout.trajectory import StopReason

TRAIN = "train"
VAL = "val-env"

# numbers of a trajectory that describe the response, not the environment: averaged over all tags together as well
SHARED = ("response_length", "reasoning_length")


@dataclass(frozen=True)
class Row:
    """What one trajectory contributes.

    Attributes:
        tag: the environment's name in the metrics (`EnvGroups.tag`).
        group: identifies the group of trajectories from one initial state.
        values: `Trajectory.metrics()`; `success` is 0 or 1.
        stop_reason: why the episode ended.
        excluded: whether its environment or engine failed.
    """

    tag: str
    group: Hashable
    values: Mapping[str, float]
    stop_reason: str
    excluded: bool = False


def summarize(rows: Sequence[Row], prefix: str, group_size: int) -> dict[str, float]:
    """Metrics of one batch.

    Args:
        rows: the trajectories, of any number of environments.
        prefix: `TRAIN` or `VAL`.
        group_size: N, for the name `pass@N`; a group that lost members keeps the name.

    Returns:
        `{prefix}/{tag}/{key}` and `{prefix}/{tag}/non-zero/{key}` (mean over those above or below 0) for every key of
        the trajectories, `{prefix}/{tag}/pass@{N}`, `{prefix}/response_length`, `{prefix}/reasoning_length`,
        `{prefix}/stop/{reason}` (shares of all trajectories), `{prefix}/stop_count/{reason}`, `{prefix}/excluded`
        (count) and `{prefix}/excluded_ratio`.
    """
    metrics: dict[str, float] = {}
    counted = [row for row in rows if not row.excluded]
    by_tag: dict[str, list[Row]] = defaultdict(list)
    for row in counted:
        by_tag[row.tag].append(row)
    for tag, members in by_tag.items():
        for key, values in _columns(members).items():
            metrics[f"{prefix}/{tag}/{key}"] = _mean(values)
            if non_zero := [value for value in values if value != 0]:
                metrics[f"{prefix}/{tag}/non-zero/{key}"] = _mean(non_zero)
        passed = _pass_rate(members)
        if passed is not None:
            metrics[f"{prefix}/{tag}/pass@{group_size}"] = passed
    shared = _columns(counted)
    metrics.update({f"{prefix}/{key}": _mean(shared[key]) for key in SHARED if key in shared})
    metrics.update(_endings(rows, prefix))
    return metrics


def _columns(rows: Iterable[Row]) -> dict[str, list[float]]:
    """Key -> the finite values of the trajectories that have it."""
    columns: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for key, value in row.values.items():
            if value is not None and isfinite(value):
                columns[key].append(float(value))
    return columns


def _pass_rate(rows: Iterable[Row]) -> float | None:
    """The share of groups in which at least one member succeeded; None where no trajectory reports success."""
    passed: dict[Hashable, bool] = {}
    for row in rows:
        if "success" in row.values:
            passed[row.group] = passed.get(row.group, False) or row.values["success"] > 0
    return _mean([float(one) for one in passed.values()]) if passed else None


def _endings(rows: Sequence[Row], prefix: str) -> dict[str, float]:
    """Counts and shares of every stop reason (those that did not occur too, so that curves have no holes)."""
    if not rows:
        return {}
    counts = Counter(str(row.stop_reason) for row in rows)
    metrics: dict[str, float] = {}
    for reason in dict.fromkeys([*(str(one) for one in StopReason), *counts]):
        metrics[f"{prefix}/stop_count/{reason}"] = float(counts[reason])
        metrics[f"{prefix}/stop/{reason}"] = counts[reason] / len(rows)
    excluded = sum(row.excluded for row in rows)
    metrics[f"{prefix}/excluded"] = float(excluded)
    metrics[f"{prefix}/excluded_ratio"] = excluded / len(rows)
    return metrics


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
