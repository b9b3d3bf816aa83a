"""The outcomes of a run on each held-out initial state, read from the saved trajectories of its evaluations.

The trainer saves all trajectories of an evaluation (`trajectories/val/000010.jsonl`), so every metric of a trajectory
can be computed for each state afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragen_verl.names import EPISODES, GENERALISATION, HELD_OUT
from ragen_verl.rollout.metrics import TOTALS
from ragen_verl.rollout.trajectory import environment_of
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.trajectories import read_file

__all__ = ["SPLITS", "DamagedRun", "Outcomes", "evaluation", "held_out"]

SPLITS = {HELD_OUT: "val", GENERALISATION: "generalisation"}
"""Prefix of a metric -> the split from whose trajectories it is computed."""


class DamagedRun(Exception):
    """A file of a run is cut short or missing, so that the run has to be repeated."""


@dataclass(frozen=True)
class Outcomes:
    """One metric of one evaluation, for every initial state.

    Attributes:
        step: the number of updates before the evaluation.
        states: environment and seed of each state, in ascending order.
        means: the mean over the trajectories of each state, float64 of shape (states,). Excluded trajectories are left
            out, and so are states that have no others.
        samples: the number of trajectories in each mean.
    """

    step: int
    states: tuple[tuple[str, int], ...]
    means: np.ndarray
    samples: tuple[int, ...]

    @property
    def mean(self) -> float:
        """The mean over the states."""
        return float(self.means.mean())


def held_out(metric: str) -> bool:
    """Whether a metric has an outcome for every state, as `val-env/success` and `val-env/Bandit/return` have."""
    return metric.partition("/")[0] in SPLITS


def evaluation(folder: RunFolder, step: int, metric: str) -> Outcomes:
    """The values of a metric on each state in one evaluation.

    Args:
        folder: the run's folder.
        step: the step of the evaluation; metrics.jsonl has a line for it.
        metric: a name in metrics.jsonl, for all environments together (`val-env/success`) or for one.

    Raises:
        DamagedRun: the file is cut short, or trajectories are missing.
        KeyError: no trajectory has the metric.
    """
    prefix, *env, name = metric.split("/")
    key = name if env else TOTALS.get(name, name)
    values: dict[tuple[str, int], list[float]] = {}
    for record in _records(folder, step, prefix):
        value = record["metrics"].get(key)
        if not record["excluded"] and value is not None and (not env or environment_of(record) == env[0]):
            values.setdefault((environment_of(record), int(record["seed"])), []).append(float(value))
    if not values:
        raise KeyError(metric)
    states = tuple(sorted(values))
    means = np.array([np.mean(values[state]) for state in states], dtype=np.float64)
    return Outcomes(step, states, means, tuple(len(values[state]) for state in states))


def _records(folder: RunFolder, step: int, prefix: str) -> Sequence[dict[str, Any]]:
    file = folder.trajectories(SPLITS[prefix]) / f"{step:06d}.jsonl"
    if not file.is_file():
        raise DamagedRun(f"{file} is missing")
    broken: list[str] = []
    records = list(read_file(file, broken.append))
    if broken:
        raise DamagedRun(broken[0])
    row = next((row for row in folder.rows() if row["step"] == step), {})
    wanted = row.get(f"{prefix}/{EPISODES}", 0) + row.get(f"{prefix}/excluded", 0)
    if len(records) != wanted:
        raise DamagedRun(f"{file} has {len(records)} of {wanted:.0f} trajectories")
    return records
