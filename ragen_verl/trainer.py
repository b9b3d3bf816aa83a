"""verl's synchronous trainer with four things joined at its hooks: filter, update sizes, metrics, run folder.

The rest, the loop included, is verl's (trainer/ppo/v1/trainer_base.py). Methods overridden here are named after
verl's and say what they add.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from ragen_verl.config import RagenConfig
from ragen_verl.filter import select
from ragen_verl.metrics import summarize
from ragen_verl.plugin import TRAINER
from ragen_verl.report.curve import learning_curve
from ragen_verl.rollout.agent_loop import RECORD
from ragen_verl.run_folder import RunFolder

POLL_SECONDS = 0.02


@register_trainer(TRAINER)
class RagenTrainer(PPOTrainerSync):
    """PPO over groups of multi-turn trajectories: `trainer.v1.trainer_mode: ragen_sync`.

    Args:
        config: the whole verl configuration with its `ragen` block.
    """

    def __init__(self, config: DictConfig) -> None:
        self.ragen = RagenConfig.from_omegaconf(config)
        self.folder = RunFolder(self.ragen.run.dir)
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # every other name means asynchronous to verl
        self._rows = 0  # rows of the batch in hand that the update sees
        super().__init__(config)

    def init(self) -> None:
        """verl's set-up; a failure leaves its cause in the run's folder."""
        with self.folder.keeps_cause():
            super().init()

    def fit(self, agent_loop_manager: Any) -> None:
        """verl's loop between the opening and the summary of the run's folder."""
        self.folder.begin(self.config, self.global_steps)
        if self.global_steps:  # a resumed run has its first validation behind it
            with open_dict(self.config):
                self.config.trainer.val_before_train = False
        with self.folder.keeps_cause():
            super().fit(agent_loop_manager)
            self.folder.finish(recipe=self.config.trainer.experiment_name, seed=self.ragen.train.seed)
            learning_curve([self.folder], self.folder.curve, self.config.trainer.experiment_name)

    def _build_replay_buffer(self) -> Any:
        """verl's buffer, asked more often than every two seconds (a constructor argument without a config key)."""
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = POLL_SECONDS
        return buffer

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, **kwargs: Any) -> KVBatchMeta:
        """Adds metrics over all trajectories, then drops failed ones and filtered groups before any model pass."""
        records = _records(batch)
        uids = [key.split("_")[0] for key in batch.keys]
        selection = select(
            [record["return"] for record in records],
            uids,
            [record["excluded"] for record in records],
            strategy=self.ragen.filter.strategy,
            value=self.ragen.filter.value,
            min_members=min(2, self.config.actor_rollout_ref.rollout.n),
        )
        kept = set(selection.rows.tolist())
        records = [{**record, "kept": row in kept} for row, record in enumerate(records)]
        self.folder.write_trajectories("train", self.global_steps, records)
        if not kept:
            error = records[0]["error"]
            raise RuntimeError(f"every trajectory of step {self.global_steps} failed, the first with: {error}")
        metrics.update(selection.metrics)
        metrics.update(summarize(records, "train", groups=uids))
        self._rows = len(kept)
        batch = _keep(batch, selection.rows.tolist())
        return super()._balance_batch(batch, metrics=metrics, **kwargs)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """What updates and micro-batches need of the kept rows; verl fills up to whole mini-batches instead."""
        multiple = math.lcm(*(self._updates(block) for block in self._trained()))
        return multiple * math.lcm(*(dp_size * _micro_batch(block) for block in self._trained()))

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """verl's update on mini-batches sized to the kept rows."""
        with self._sized_to(self.config.actor_rollout_ref.actor, len(batch)):
            batch = super()._update_actor(batch, metrics)
        if "actor/entropy" not in metrics and "actor/entropy_loss" in metrics:
            metrics["actor/entropy"] = metrics["actor/entropy_loss"]  # with engine log-probs there is no other pass
        return batch

    def _update_critic(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """verl's update on mini-batches sized to the kept rows."""
        with self._sized_to(self.config.critic, len(batch)):
            return super()._update_critic(batch, metrics)

    def _compute_metrics(self, batch: KVBatchMeta, metrics: dict, *args: Any, **kwargs: Any) -> None:
        """verl's metrics, and the step's line in metrics.jsonl."""
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        self.folder.log(self.global_steps, metrics)

    def _validate(self) -> dict[str, float]:
        """verl's validation; the one before training gets a line of its own in metrics.jsonl."""
        metrics = super()._validate()
        if not getattr(self, "timing_raw", None):
            self.folder.log(self.global_steps, metrics)
        return metrics

    def _val_metrics_update(
        self, data_sources: list, sample_uids: list, reward_extra_infos_dict: dict, *args: Any, **kwargs: Any
    ) -> dict[str, float]:
        """Adds `val-env/` metrics and writes the held-out trajectories.

        verl hands over the last row of each; the reward of a trajectory with several rows is its return all the same.
        """
        texts = reward_extra_infos_dict.pop(RECORD)
        records = [json.loads(text) for text in texts if text]
        scores = reward_extra_infos_dict["reward"]
        scores[:] = [json.loads(text)["return"] if text else score for text, score in zip(texts, scores, strict=True)]
        self.folder.write_trajectories("val", self.global_steps, records)
        metrics = super()._val_metrics_update(data_sources, sample_uids, reward_extra_infos_dict, *args, **kwargs)
        return metrics | summarize(records, "val-env")

    def _trained(self) -> list[DictConfig]:
        actor = self.config.actor_rollout_ref.actor
        return [actor, self.config.critic] if self.use_critic else [actor]

    def _updates(self, block: DictConfig) -> int:
        """Optimiser steps per epoch on the rows in hand: in proportion to them, and one at least."""
        return max(1, round(self._rows / (block.ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n)))

    @contextmanager
    def _sized_to(self, block: DictConfig, rows: int) -> Iterator[None]:
        """While open, verl's mini-batch (`ppo_mini_batch_size * rollout.n` rows) divides `rows` into the updates."""
        rollout = self.config.actor_rollout_ref.rollout
        size, n = block.ppo_mini_batch_size, rollout.n
        per_update = rows // self._updates(block)
        block.ppo_mini_batch_size, rollout.n = per_update, 1
        try:
            yield
        finally:
            block.ppo_mini_batch_size, rollout.n = size, n


def _micro_batch(block: DictConfig) -> int:
    """Rows per rank that verl wants the batch to be a multiple of; none with dynamic micro-batches."""
    return 1 if block.use_dynamic_bsz else block.ppo_micro_batch_size_per_gpu


def _records(batch: KVBatchMeta) -> list[dict[str, Any]]:
    """The trajectories' records, one per row, in the batch's order."""
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    return [json.loads(fields["reward_extra_info"][RECORD]) for fields in list(data["extra_fields"])]


def _keep(batch: KVBatchMeta, rows: list[int]) -> KVBatchMeta:
    """The batch with these rows only; the others are cleared, which verl does for surviving rows alone."""
    kept = set(rows)
    dropped = [key for row, key in enumerate(batch.keys) if row not in kept]
    if not dropped:
        return batch
    tq.kv_clear(keys=dropped, partition_id=batch.partition_id)
    return KVBatchMeta(
        partition_id=batch.partition_id,
        keys=[batch.keys[row] for row in rows],
        tags=[batch.tags[row] for row in rows],
        fields=batch.fields,
        extra_info=batch.extra_info,
    )
