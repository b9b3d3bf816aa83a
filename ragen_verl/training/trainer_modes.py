"""The two trainers that verl finds by name: one waits for a step's groups, one trains on those that have ended."""

from __future__ import annotations

from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from ragen_verl.names import ASYNC_TRAINER, TRAINER
from ragen_verl.training.batch import TrajectoryBatch
from ragen_verl.training.staleness import staleness
from ragen_verl.training.trainer import AgentTrainer

__all__ = ["RagenAsyncTrainer", "RagenTrainer"]


@register_trainer(TRAINER)
class RagenTrainer(AgentTrainer, PPOTrainerSync):
    """`trainer.v1.trainer_mode: ragen_sync`: the engine plays a step's groups and sleeps while they are trained on."""

    mode = "sync"


@register_trainer(ASYNC_TRAINER)
class RagenAsyncTrainer(AgentTrainer, PPOTrainerColocateAsync):
    """`trainer.v1.trainer_mode: ragen_async`: groups are in flight all the time, a step takes the oldest finished ones.

    verl pauses the engine while the model is trained. Environments go on, and a request that was cut is continued with
    the new weights. verl's buffer is `ragen_verl.training.oldest_groups`.
    """

    mode = "colocate_async"

    def _select(self, batch: KVBatchMeta, played: TrajectoryBatch, metrics: dict[str, Any]) -> list[int]:
        """Adds how old the weights are that played the trajectories."""
        metrics.update(staleness(batch, played, self.global_steps))
        return super()._select(batch, played, metrics)
