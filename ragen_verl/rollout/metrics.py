"""Environment metrics of a batch of trajectories, under RAGEN's names (`train/...` and `val-env/...`).

A mean is taken over the trajectories that report the metric, not over all of them: an environment without such a
number, or an episode that ended before it could report one, does not lower the mean. Excluded trajectories (environment
or engine failed) are only counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from math import isfinite

from ragen_verl.names import EPISODES, RETURN, SUCCESS, VALID
from ragen_verl.rollout.trajectory import Record, StopReason, environment_of

__all__ = ["TOTALS", "summarize"]

# name under the prefix -> key of a trajectory's metrics: averaged over the environments together
TOTALS = {
    SUCCESS: "success",
    "truncated": "truncated",
    RETURN: "return",
    VALID: "valid_turn_ratio",
    "response_length": "response_length",
    "reasoning_length": "reasoning_length",
    "calls": "calls",
    "turns_without_call": "turns_without_call",
}


def summarize(records: Sequence[Record], prefix: str, groups: Sequence[Hashable] | None = None) -> dict[str, float]:
    """Metrics of one batch.

    Args:
        records: `Trajectory.record()` of each trajectory, of any number of environments. Only `env` (the name in the
            metrics), `seed`, `stop_reason`, `excluded`, `metrics` (`Trajectory.metrics()`) and perhaps `kept` are read.
        prefix: `train`, `val-env` or `generalisation`.
        groups: the group of each trajectory; without it, those with the same `env` and `seed` are a group.

    Returns:
        Per environment: `{prefix}/{env}/{key}` for every key of the trajectories' metrics,
        `{prefix}/{env}/non-zero/{key}` (mean over the trajectories where it is not 0) and `{prefix}/{env}/pass@{N}`
        (share of groups with a success; N is the size of the largest group, failed trajectories included),
        `{prefix}/{env}/groups` (the number of groups) and, where records say whether the filter kept them,
        `{prefix}/{env}/kept_ratio` (share of its trajectories that the update uses).
        Over all: `{prefix}/{name}` for the names in `TOTALS`, `{prefix}/episodes` (the number of trajectories in these
        means, without excluded ones), `{prefix}/stop/{reason}` (share of all trajectories),
        `{prefix}/stop_count/{reason}`, `{prefix}/excluded` (count) and `{prefix}/excluded_ratio`.
    """
    if groups is None:
        groups = [(environment_of(record), record["seed"]) for record in records]
    by_env: dict[str, list[tuple[Hashable, Record]]] = defaultdict(list)
    for group, record in zip(groups, records, strict=True):
        by_env[environment_of(record)].append((group, record))
    metrics: dict[str, float] = {}
    for env, played in by_env.items():
        counted = [(group, record) for group, record in played if not record["excluded"]]
        for key, values in _columns(record for _, record in counted).items():
            metrics[f"{prefix}/{env}/{key}"] = _mean(values)
            if non_zero := [value for value in values if value != 0]:
                metrics[f"{prefix}/{env}/non-zero/{key}"] = _mean(non_zero)
        if counted:
            size = max(Counter(group for group, _ in played).values())
            metrics[f"{prefix}/{env}/pass@{size}"] = _pass_rate(counted)
            metrics[f"{prefix}/{env}/groups"] = float(len({group for group, _ in played}))
            if kept := [float(record["kept"]) for _, record in played if "kept" in record]:
                metrics[f"{prefix}/{env}/kept_ratio"] = _mean(kept)
    together = _columns(record for record in records if not record["excluded"])
    metrics.update({f"{prefix}/{name}": _mean(together[key]) for name, key in TOTALS.items() if key in together})
    if records:
        metrics[f"{prefix}/{EPISODES}"] = float(sum(not record["excluded"] for record in records))
    metrics.update(_endings(records, prefix))
    return metrics


def _columns(records: Iterable[Record]) -> dict[str, list[float]]:
    """Key -> the finite values of the trajectories that have it."""
    columns: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for key, value in record["metrics"].items():
            if value is not None and isfinite(value):
                columns[key].append(float(value))
    return columns


def _pass_rate(played: Iterable[tuple[Hashable, Record]]) -> float:
    """The share of groups in which at least one trajectory succeeded."""
    passed: dict[Hashable, bool] = {}
    for group, record in played:
        passed[group] = passed.get(group, False) or record["metrics"]["success"] > 0
    return _mean([float(one) for one in passed.values()])


def _endings(records: Sequence[Record], prefix: str) -> dict[str, float]:
    """Counts and shares of every stop reason; 0 for those that did not occur, so that curves have no gaps."""
    if not records:
        return {}
    counts = Counter(str(record["stop_reason"]) for record in records)
    metrics: dict[str, float] = {}
    for reason in dict.fromkeys([*(str(one) for one in StopReason), *counts]):
        metrics[f"{prefix}/stop_count/{reason}"] = float(counts[reason])
        metrics[f"{prefix}/stop/{reason}"] = counts[reason] / len(records)
    excluded = sum(bool(record["excluded"]) for record in records)
    metrics[f"{prefix}/excluded"] = float(excluded)
    metrics[f"{prefix}/excluded_ratio"] = excluded / len(records)
    return metrics


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
