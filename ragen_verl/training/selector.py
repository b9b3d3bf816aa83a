"""The choice of the trajectories of a step for the update, and the handling of steps in which none is left."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from ragen_verl.config import RagenConfig
from ragen_verl.filter import select
from ragen_verl.names import EARLY_STOPPED, EMPTY_STEP, ROLLOUT
from ragen_verl.training.batch import TrajectoryBatch, TrajectoryReader, entropies
from ragen_verl.training.data_plane import Batch

__all__ = ["NothingToTrainOnError", "Selector"]


class NothingToTrainOnError(Exception):
    """The filter left no group of a step; `batch` has all of the step's rows, none of them cleared."""

    def __init__(self, batch: Batch) -> None:
        super().__init__("the filter left no group")
        self.batch = batch


class Selector:
    """Applies the recipe's filter to the steps of a run.

    Args:
        config: verl's whole configuration.
        ragen: its `ragen` block.
        reader: reads the rows of a step; the sampler, which may have read them before, has the same one.
    """

    def __init__(self, config: DictConfig, ragen: RagenConfig, reader: TrajectoryReader) -> None:
        self.filter, self.reader = ragen.filter, reader
        self.rule = ragen.filter.rule(ragen.train.groups, config.actor_rollout_ref.rollout.n)
        self.empty_steps = 0  # in a row, up to the current one

    def choose(self, batch: Batch) -> tuple[TrajectoryBatch, list[int], dict[str, Any]]:
        """Read the trajectories of a step and apply the filter.

        Returns:
            All trajectories, the indices of those that are kept, and the filter's metrics.
        """
        played = self.reader.read(batch)
        measures = {"length": played.lengths}
        if self.filter.needs_entropy:
            measures["entropy"] = entropies(batch, played)
        selection = select(
            played.returns,
            played.groups,
            played.excluded,
            rule=self.rule,
            measures=measures,
            rollout_indices=[record["rollout_index"] for record in played.records],
        )
        return played, selection.kept.tolist(), selection.metrics

    def count(self, empty: bool, metrics: dict[str, Any]) -> bool:
        """Count empty steps; whether too many of them in a row end the run."""
        self.empty_steps = self.empty_steps + 1 if empty else 0
        metrics[EMPTY_STEP] = float(empty)
        metrics[f"{ROLLOUT}/consecutive_empty_after_filter_steps"] = float(self.empty_steps)
        limit = self.filter.empty_limit
        if limit is None or self.empty_steps < limit:
            return False
        metrics[f"{EARLY_STOPPED}/empty_filtered_steps"] = 1.0
        return True
