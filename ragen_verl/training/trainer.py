"""verl's trainer with filter, dynamic sampling, update sizes, metrics and the run's folder added at its hooks.

The rest is verl's (trainer/ppo/v1/trainer_base.py). Overridden methods have verl's names, and their docstrings say what
they add. A recorder, a selector and a planner do the work, and verl builds the sampler (`ragen_verl.training.sampler`).
`trainer_modes` makes the synchronous and the asynchronous trainers of this class.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import DictConfig
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from ragen_verl.config import RagenConfig
from ragen_verl.names import SECONDS
from ragen_verl.runs.checkpoints import Wanted, prune, saving, settle
from ragen_verl.runs.folder import checkpoint_of, explain_weightless
from ragen_verl.training.advantages import halves_as_groups, own_estimator
from ragen_verl.training.batch import keep_rows
from ragen_verl.training.data_plane import Batch
from ragen_verl.training.overrides import complete, kl_over_real_rows
from ragen_verl.training.planner import Planner, data_parallel_ranks, turns_weighed_here
from ragen_verl.training.recorder import Recorder, trajectories_of
from ragen_verl.training.selector import NothingToTrainOnError, Selector
from ragen_verl.training.staleness import staleness

__all__ = ["AgentTrainer"]


class AgentTrainer(PPOTrainer):
    """PPO over groups of multi-turn trajectories. It is the common part of synchronous and asynchronous training.

    Args:
        config: the whole verl configuration with its `ragen` block.
    """

    mode: ClassVar[str]  # verl's name of the trainer that a subclass is built on

    def __init__(self, config: DictConfig) -> None:
        self.ragen = RagenConfig.from_omegaconf(config)
        complete(config, self.ragen, self.mode)
        super().__init__(config)
        self.recorder, self.planner = Recorder(config, self.ragen), Planner(config, self.ragen)
        self.selector = Selector(config, self.ragen, self.replay_buffer.reader)
        self.monitor, self.expect = self.recorder.monitor, self.recorder.watchdog.expect

    def init(self) -> None:
        """Set up models and engine as verl does; if that fails, the cause is written to the run's folder."""
        with self.recorder.start(), turns_weighed_here(self.config):
            super().init()

    def fit(self, agent_loop_manager: Any) -> None:
        """Run verl's training loop inside the recorder's."""
        with self.recorder.run(self.global_steps, agent_loop_manager.agent_loop_workers):
            super().fit(agent_loop_manager)

    def on_validate_begin(self) -> None:
        """Write the phase to the run's folder first."""
        self.recorder.begin("evaluating on held-out states")
        super().on_validate_begin()

    def on_train_begin(self) -> None:
        """Write the phase to the run's folder first."""
        self.recorder.begin("playing the first step")
        super().on_train_begin()

    def on_step_end(self) -> None:
        """Save a checkpoint first, if somebody asked for one (with SIGUSR1 to `ragen-verl train`)."""
        if (wanted := self.recorder.folder.wanted).exists():
            if not self._checkpoint.exists():
                self._save_checkpoint()
            wanted.unlink(missing_ok=True)
        super().on_step_end()

    def _load_checkpoint(self) -> None:
        """Load the newest checkpoint that is complete; the log says what newer ones lack."""
        settle(self.config)
        super()._load_checkpoint()

    def _save_checkpoint(self) -> None:
        """Save a complete checkpoint or none, put a README into folders without weights, and remove what is too old."""
        with saving(self._checkpoint, Wanted.of(self.config)):
            super()._save_checkpoint()
            explain_weightless(self._checkpoint)
        prune(self._checkpoint, self.config)

    @property
    def _checkpoint(self) -> Path:
        return checkpoint_of(Path(self.config.trainer.default_local_dir), self.global_steps)

    def _step_once(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> Batch:
        """Make one update, or none where the filter left no group; too many such steps in a row end the run."""
        self.selector.reader.clear()
        self.expect(f"the episodes of step {self.global_steps}")
        try:
            batch, empty = super()._step_once(metrics, timing_raw, sample_batch_size), False
        except NothingToTrainOnError as nothing:
            batch, empty = nothing.batch, True
        if self.selector.count(empty, metrics):
            self.total_training_steps = self.global_steps  # verl's loop ends when this step is logged
        return batch

    def _balance_batch(self, batch: Batch, metrics: dict, **kwargs: Any) -> Batch:
        """Measure all trajectories, drop failed ones and filtered groups, and share the rest among the updates."""
        self.expect(f"a pass over the model in step {self.global_steps}")
        played, kept, selected = self.selector.choose(batch)
        metrics |= {} if self.mode == "sync" else staleness(batch, played, self.global_steps)
        metrics |= selected | self.recorder.played(self.global_steps, played, kept)
        metrics |= self.monitor.played(self, batch, played)
        if not kept:
            raise NothingToTrainOnError(batch)
        trained, ranks = played.select(kept), data_parallel_ranks(self.actor_rollout_wg)
        self.planner.begin(trained, ranks, reference=self.use_reference_policy, critic=self.use_critic)
        batch = super()._balance_batch(keep_rows(batch, trained.row_keys), metrics=metrics, **kwargs)
        self.planner.reorder(batch, self.global_steps)
        return batch

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Pad the kept rows to what updates and micro-batches need, and not to whole mini-batches as verl does."""
        return self.planner.plan.padded

    def _cut(self, name: str, group: str, updated: DictConfig | None = None) -> AbstractContextManager[None]:
        self.expect(f"the pass {name}")
        return self.planner.cut(self, name, group, updated)

    def _compute_old_log_prob(self, batch: Batch, metrics: dict) -> Batch:
        """Use micro-batches that divide the rows, and measure the distance from the engine's log-probabilities."""
        with self._cut("old_log_prob", "actor_rollout_wg"):
            batch = super()._compute_old_log_prob(batch, metrics)
            metrics |= self.monitor.mismatch(self, batch)
        return batch

    def _compute_ref_log_prob(self, batch: Batch, metrics: dict) -> Batch:
        """Use micro-batches that divide the rows."""
        with self._cut("ref", "actor_rollout_wg" if self.ref_in_actor else "ref_policy_wg"):
            batch = super()._compute_ref_log_prob(batch, metrics)
        batch.extra_info.pop("no_lora_adapter", None)  # for this pass only: the critic has no adapter to switch off
        return batch

    def _compute_values(self, batch: Batch, metrics: dict) -> Batch:
        """Use micro-batches that divide the rows."""
        with self._cut("values", "critic_wg"):
            return super()._compute_values(batch, metrics)

    def _compute_advantage(self, batch: Batch, metrics: dict) -> Batch:
        """Use the estimators of this package, and average the KL in the reward over real rows, without padding."""
        plan = self.planner.plan
        with (
            own_estimator(self.config, self.ragen.advantage, batch, plan.trajectories),
            halves_as_groups(self.ragen.filter.cross_fit),
            kl_over_real_rows(self, metrics, plan.rows, plan.padded),
        ):
            batch = super()._compute_advantage(batch, metrics)
        self.recorder.weighed(self.global_steps, batch, plan.trajectories)
        return batch

    def _update_actor(self, batch: Batch, metrics: dict) -> Batch:
        """Use mini-batches that fit the kept rows, and weights of advantages as filter and loss ask for."""
        self.planner.weigh(batch)
        metrics |= self.monitor.gradients(self, batch, self.planner.plan.trajectories)
        with self._cut("actor", "actor_rollout_wg", self.config.actor_rollout_ref.actor):
            return super()._update_actor(batch, metrics)

    def _update_critic(self, batch: Batch, metrics: dict) -> Batch:
        """Use mini-batches that fit the kept rows."""
        with self._cut("critic", "critic_wg", self.config.critic):
            return super()._update_critic(batch, metrics)

    def _compute_metrics(self, batch: Batch, metrics: dict, *args: Any, **kwargs: Any) -> None:
        """Also write the step's line in metrics.jsonl; verl's metrics of a step without an update are times only."""
        if self.selector.empty_steps:
            metrics["training/global_step"] = self.global_steps
            metrics |= {f"{SECONDS}/{name}": seconds for name, seconds in self.timing_raw.items()}
        else:
            super()._compute_metrics(batch, metrics, *args, **kwargs)
        if self.recorder.step(self.global_steps, metrics):
            self.total_training_steps = self.global_steps  # verl's loop ends when this step is logged

    def _validate(self) -> dict[str, float]:
        """Write the validation before training as a line of its own in metrics.jsonl."""
        metrics = super()._validate()
        self.recorder.evaluated(self.global_steps, metrics, training=bool(getattr(self, "timing_raw", None)))
        return metrics

    def _val_metrics_update(self, sources: list, uids: list, rows: dict, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Add `val-env/` and `generalisation/` metrics, and save and log the held-out trajectories."""
        records = trajectories_of(rows)
        metrics = super()._val_metrics_update(sources, uids, rows, *args, **kwargs)
        return metrics | self.recorder.evaluation(self.global_steps, records, self.validation_generations_logger)

    def _maybe_log_val_generations(self, inputs: Any, outputs: Any, scores: Any) -> None:
        """Log nothing here: verl's rows may be single turns. `_val_metrics_update` logs whole trajectories."""
