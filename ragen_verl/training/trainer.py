"""verl's trainer with filter, refill, update sizes, metrics and the run's folder added at its hooks.

The rest is verl's (trainer/ppo/v1/trainer_base.py). Overridden methods have verl's names, and their docstrings say what
they add. `trainer_modes` makes the synchronous and the asynchronous trainer of this class.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import DictConfig, open_dict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from ragen_verl.config import RagenConfig
from ragen_verl.filter import select
from ragen_verl.names import (
    ACTOR,
    EARLY_STOPPED,
    EMPTY_STEP,
    ENTROPY,
    GENERALISATION,
    HELD_OUT,
    ROLLOUT,
    SECONDS,
    TRAIN,
)
from ragen_verl.rollout.metrics import summarize
from ragen_verl.rollout.recurrence import InitialStates
from ragen_verl.rollout.trajectory import RECORD
from ragen_verl.runs.checkpoints import Wanted, saving, survey_of
from ragen_verl.runs.folder import RunFolder, checkpoint_of, explain_weightless
from ragen_verl.runs.plots import learning_curve
from ragen_verl.training import batch as episodes
from ragen_verl.training.advantages import estimating, halved
from ragen_verl.training.batch import TrajectoryBatch
from ragen_verl.training.losses import TURN_MEAN, turn_weights
from ragen_verl.training.model_passes import passes
from ragen_verl.training.monitoring import TrainingMonitor
from ragen_verl.training.nodes import check_nodes
from ragen_verl.training.overrides import carrying, configured, kl_over_real_rows
from ragen_verl.training.probes import data_parallel_ranks
from ragen_verl.training.refill import Refill, informative
from ragen_verl.training.step_plan import ModelPass, StepPlan
from ragen_verl.training.trackers import samples, write_inside
from ragen_verl.training.watchdog import Watchdog

__all__ = ["AgentTrainer"]

_POLL_SECONDS = 0.02


class _NothingToTrainOn(Exception):
    """The filter left no group of a step; `batch` has all of the step's rows, none of them cleared."""

    def __init__(self, batch: KVBatchMeta) -> None:
        super().__init__("the filter left no group")
        self.batch = batch


class AgentTrainer(PPOTrainer):
    """PPO over groups of multi-turn trajectories. It is the common part of synchronous and asynchronous training.

    Args:
        config: the whole verl configuration with its `ragen` block.

    Attributes:
        mode: verl's name of the trainer that a subclass is built on.
    """

    mode: ClassVar[str]

    def __init__(self, config: DictConfig) -> None:
        self.ragen = RagenConfig.from_omegaconf(config)
        self.folder = RunFolder(self.ragen.run.dir)
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.mode  # verl takes every name but sync for asynchronous
            if self.ragen.filter.refills:
                config.data.gen_batch_size = 1  # a refill takes any number of groups from the data stream
            if config.critic.use_dynamic_bsz and "ppo_infer_max_token_len_per_gpu" not in config.critic:
                # verl's critic reads the tokens of a pass from this key alone (trainer_base.py:267)
                config.critic.ppo_infer_max_token_len_per_gpu = config.critic.ppo_max_token_len_per_gpu
        self._reader = episodes.TrajectoryReader()  # the reader and the plan are those of the current step
        self._plan: StepPlan | None = None
        self._records: list[dict[str, Any]] = []
        self._empty_steps = 0  # in a row
        kept = self.ragen.kept_groups / self.ragen.train.groups
        self.monitor = TrainingMonitor(self.ragen, self.folder, config.trainer.default_local_dir, kept)
        self._met = InitialStates()
        self._watchdog = Watchdog(self.ragen.run.stall_minutes, self.folder.error)
        super().__init__(config)

    def init(self) -> None:
        """Set up models and engine as verl does; if that fails, the cause is written to the run's folder."""
        policy_loss = self.config.actor_rollout_ref.actor.policy_loss
        # the trainer weighs the turns itself, because the loss in the workers does not know where turns end
        loss_mode = "vanilla" if policy_loss.loss_mode == TURN_MEAN else policy_loss.loss_mode
        with self.folder.keeps_cause(), configured(policy_loss, loss_mode=loss_mode):
            check_nodes(self.folder.path)
            self._watchdog.expect("the start of models and engine")
            super().init()

    def fit(self, agent_loop_manager: Any) -> None:
        """Run verl's training loop; before it the run's folder is opened, after it the summary is written."""
        write_inside(self.folder.path, self.global_steps, self.config.trainer.logger)
        if self.config.trainer.val_only:
            self._evaluate(agent_loop_manager)
            return
        with self.folder.keeps_cause():
            self.folder.begin(self.config, self.global_steps)
            self.monitor.resume()
            self._met.read(self.folder.trajectories("train"), self.global_steps)
            if self.global_steps:  # the first validation of a resumed run was made before
                with open_dict(self.config):
                    self.config.trainer.val_before_train = False
            self._watchdog.look_after(agent_loop_manager.agent_loop_workers)
            super().fit(agent_loop_manager)
            self._watchdog.rest()
            recipe = self.folder.recipe or self.config.trainer.experiment_name
            self.folder.finish(recipe=recipe, seed=self.ragen.train.seed)
            learning_curve([self.folder], self.folder.curve, self.config.trainer.experiment_name)

    def _evaluate(self, agent_loop_manager: Any) -> None:
        """Only evaluate the newest checkpoint, or the model if there is none; other files of the folder stay."""
        with open_dict(self.config):
            self.config.trainer.val_before_train = True  # verl makes this evaluation and then ends
        with self.folder.keeps_cause():
            super().fit(agent_loop_manager)

    def on_validate_begin(self) -> None:
        """Write the phase to the run's folder first."""
        self._watchdog.expect("an evaluation")
        self.folder.write_phase("evaluating on held-out states")
        super().on_validate_begin()

    def on_train_begin(self) -> None:
        """Write the phase to the run's folder first."""
        self.folder.write_phase("playing the first step")
        super().on_train_begin()

    def on_step_end(self) -> None:
        """Save a checkpoint first, if somebody asked for one (with SIGUSR1 to `ragen-verl train`)."""
        if self.folder.wanted.exists():
            if not self._checkpoint.exists():
                self._save_checkpoint()
            self.folder.wanted.unlink(missing_ok=True)
        super().on_step_end()

    def _load_checkpoint(self) -> None:
        """Load the newest checkpoint that is complete; the log says what newer ones lack."""
        if found := survey_of(self.config):
            for sentence in found.sentences():
                print(sentence)
            found.settle()
        super()._load_checkpoint()

    def _save_checkpoint(self) -> None:
        """Save a complete checkpoint or none, and put a README into folders that look like models without weights."""
        with saving(self._checkpoint, Wanted.of(self.config)):
            super()._save_checkpoint()
            explain_weightless(self._checkpoint)

    @property
    def _checkpoint(self) -> Path:
        return checkpoint_of(Path(self.config.trainer.default_local_dir), self.global_steps)

    def _build_replay_buffer(self) -> Any:
        """Make verl poll its buffer more often than every two seconds, for which it has no key, and add the refill."""
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = _POLL_SECONDS
        if not self.ragen.filter.refills:
            return buffer
        return Refill(
            buffer,
            submit=self._add_prompts_to_generate,
            count=self._informative,
            target=self.ragen.filter.target(self.ragen.train.groups),
            limit=self.ragen.filter.extra_groups(self.ragen.train.groups),
        )

    def _step_once(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> KVBatchMeta:
        """Make one update, or none where the filter left no group; too many such steps in a row end the run."""
        self._reader.clear()
        self._plan = None
        self._watchdog.expect(f"the episodes of step {self.global_steps}")
        try:
            batch = super()._step_once(metrics, timing_raw, sample_batch_size)
            self._empty_steps = 0
        except _NothingToTrainOn as nothing:
            batch = nothing.batch
            self._empty_steps += 1
        metrics[EMPTY_STEP] = float(self._empty_steps > 0)
        metrics[f"{ROLLOUT}/consecutive_empty_after_filter_steps"] = float(self._empty_steps)
        limit = self.ragen.filter.empty_limit
        if limit is not None and self._empty_steps >= limit:
            metrics[f"{EARLY_STOPPED}/empty_filtered_steps"] = 1.0
            self.total_training_steps = self.global_steps  # verl's loop ends when this step is logged
        return batch

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, **kwargs: Any) -> KVBatchMeta:
        """Measure all trajectories, drop failed ones and filtered groups, and share the rest among the updates."""
        self._watchdog.expect(f"a pass over the model in step {self.global_steps}")
        played = self._reader.read(batch)
        kept = self._select(batch, played, metrics)
        if not kept:
            raise _NothingToTrainOn(batch)
        trained = played.select(kept)
        self._plan = plan = StepPlan.of(trained, data_parallel_ranks(self.actor_rollout_wg), self._passes(len(kept)))
        batch = super()._balance_batch(episodes.keep_rows(batch, trained.row_keys), metrics=metrics, **kwargs)
        lengths = [tag["seq_len"] for tag in batch.tags]
        batch.reorder(plan.order(batch.keys, lengths, (self.ragen.train.seed, self.global_steps)))
        return batch

    def _select(self, batch: KVBatchMeta, played: TrajectoryBatch, metrics: dict) -> list[int]:
        """Choose the trajectories for the update. All of them, chosen or not, are measured and saved."""
        measures = {"length": played.lengths}
        if self.ragen.filter.needs_entropy:
            measures["entropy"] = episodes.entropies(batch, played)
        rule = self.ragen.filter.rule(self.ragen.train.groups, self.config.actor_rollout_ref.rollout.n)
        selection = select(
            played.returns,
            played.groups,
            played.excluded,
            rule=rule,
            measures=measures,
            rollout_indices=[record["rollout_index"] for record in played.records],
        )
        kept = selection.kept.tolist()
        stays = set(kept)
        self._records = records = [{**record, "kept": i in stays} for i, record in enumerate(played.records)]
        self.folder.write_trajectories("train", self.global_steps, records)
        self._met.add(records)
        if all(record["excluded"] for record in records):
            error = records[0]["error"]
            raise RuntimeError(f"every trajectory of step {self.global_steps} failed, the first with: {error}")
        metrics.update(selection.metrics)
        metrics.update(summarize(records, TRAIN, groups=played.groups))
        metrics.update(self.monitor.played(self, batch, played))
        return kept

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Pad the kept rows to what updates and micro-batches need, and not to whole mini-batches as verl does."""
        return self._plan.padded

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Use micro-batches that divide the rows, and measure the distance from the engine's log-probabilities."""
        with self._cut("old_log_prob", "actor_rollout_wg"):
            batch = super()._compute_old_log_prob(batch, metrics)
            metrics.update(self.monitor.drift(self, batch))
        return batch

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Use micro-batches that divide the rows."""
        with self._cut("ref", "actor_rollout_wg" if self.ref_in_actor else "ref_policy_wg"):
            batch = super()._compute_ref_log_prob(batch, metrics)
        batch.extra_info.pop("no_lora_adapter", None)  # for this pass only: the critic has no adapter to switch off
        return batch

    def _compute_values(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Use micro-batches that divide the rows."""
        with self._cut("values", "critic_wg"):
            return super()._compute_values(batch, metrics)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Use the estimators of this package, and average the KL in the reward over real rows, without padding."""
        plan = self._plan
        with (
            estimating(self.config, self.ragen.advantage, batch, plan.trajectories),
            halved(self.ragen.filter.cross_fit),
            kl_over_real_rows(self, metrics, plan.rows, plan.padded),
        ):
            batch = super()._compute_advantage(batch, metrics)
        if self.ragen.run.tokens:
            episodes.fill_tokens(batch, plan.trajectories)
            self.folder.write_trajectories("train", self.global_steps, self._records)
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Use mini-batches that fit the kept rows, and weights of advantages as filter and loss ask for."""
        self._weigh(batch)
        metrics.update(self.monitor.gradients(self, batch, self._plan.trajectories))
        with self._cut("actor", "actor_rollout_wg", self.config.actor_rollout_ref.actor):
            batch = super()._update_actor(batch, metrics)
        if ENTROPY not in metrics and f"{ACTOR}/entropy_loss" in metrics:
            metrics[ENTROPY] = metrics[f"{ACTOR}/entropy_loss"]  # with the engine's log-probs no other pass has it
        return batch

    def _update_critic(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Use mini-batches that fit the kept rows."""
        with self._cut("critic", "critic_wg", self.config.critic):
            return super()._update_critic(batch, metrics)

    def _compute_metrics(self, batch: KVBatchMeta, metrics: dict, *args: Any, **kwargs: Any) -> None:
        """Also write the step's line in metrics.jsonl; verl's metrics of a step without an update are times only."""
        if self._empty_steps:
            metrics["training/global_step"] = self.global_steps
            metrics.update({f"{SECONDS}/{name}": seconds for name, seconds in self.timing_raw.items()})
        else:
            super()._compute_metrics(batch, metrics, *args, **kwargs)
        self._watchdog.expect(f"the end of step {self.global_steps}: logging, a checkpoint or an evaluation")
        reason = self.monitor.step(self.global_steps, metrics)
        self.folder.log(self.global_steps, metrics)
        self.monitor.updates.check(self.global_steps)
        if reason:
            print(reason)
            self.total_training_steps = self.global_steps  # verl's loop ends when this step is logged

    def _validate(self) -> dict[str, float]:
        """Write the validation before training as a line of its own in metrics.jsonl."""
        metrics = super()._validate()
        if self.config.trainer.val_only:
            self.folder.write_evaluation(self.global_steps, metrics)
        elif not getattr(self, "timing_raw", None):
            self.folder.log(self.global_steps, metrics)
        return metrics

    def _val_metrics_update(
        self, data_sources: list, sample_uids: list, reward_extra_infos_dict: dict, *args: Any, **kwargs: Any
    ) -> dict[str, float]:
        """Add `val-env/` and `generalisation/` metrics, and save the held-out trajectories.

        verl passes only the last row of each trajectory; its reward is replaced by the return of the whole trajectory.
        """
        found = [json.loads(text) if text else None for text in reward_extra_infos_dict.pop(RECORD)]
        records = [record for record in found if record]
        scores = reward_extra_infos_dict["reward"]
        scores[:] = [record["return"] if record else score for record, score in zip(found, scores, strict=True)]
        metrics = super()._val_metrics_update(data_sources, sample_uids, reward_extra_infos_dict, *args, **kwargs)
        for name, prefix in (("val", HELD_OUT), ("generalisation", GENERALISATION)):
            if split := self.ragen.splits.get(name):
                mine = [record for record in records if record["seed"] in split.seeds()]  # the splits share no seed
                self.folder.write_trajectories(name, self.global_steps, mine)
                metrics |= summarize(mine, prefix) | self._met.metrics(mine, prefix)
        if most := self.config.trainer.log_val_generations:
            table = samples(records, most)
            self.validation_generations_logger.log(self.config.trainer.logger, table, self.global_steps)
        return metrics

    def _maybe_log_val_generations(self, inputs: Any, outputs: Any, scores: Any) -> None:
        """Log nothing here: verl's rows may be single turns. `_val_metrics_update` logs whole trajectories."""

    def _passes(self, kept: int) -> dict[str, ModelPass]:
        """Name of each pass of a step over the model -> how it divides `kept` trajectories, by the recipe."""
        return passes(self.config, self.ragen, kept, reference=self.use_reference_policy, critic=self.use_critic)

    def _weigh(self, batch: KVBatchMeta) -> None:
        """Scale advantages by the kept share of a step, and give all turns equal weight, as the recipe says."""
        turn_mean = self.config.actor_rollout_ref.actor.policy_loss.loss_mode == TURN_MEAN
        factor, ends = self._loss_scale(), self._plan.trajectories.ends(batch.keys)
        if turn_mean:
            episodes.weigh_advantages(batch, lambda mask: factor * turn_weights(mask, ends))
        elif factor != 1:
            episodes.weigh_advantages(batch, lambda mask: factor * mask)

    def _loss_scale(self) -> float:
        """The kept share of a step's P * N trajectories, or its square root; at most 1, also after a refill."""
        if self.ragen.filter.loss_scaling == "none":
            return 1.0
        step = self.ragen.train.groups * self.config.actor_rollout_ref.rollout.n
        share = min(1.0, len(self._plan.trajectories) / step)
        return share if self.ragen.filter.loss_scaling == "linear" else share**0.5

    @contextmanager
    def _cut(self, name: str, group: str, updated: DictConfig | None = None) -> Iterator[None]:
        """While open, calls of a worker group divide the rows of the step as the plan says.

        verl divides its seq-mean losses by the `ppo_mini_batch_size * rollout.n` rows of a mini-batch, padding included
        (core_algos.agg_loss). Here they are divided by the mean number of real rows in an update.

        Args:
            name: the name of the pass.
            group: the name of the trainer's attribute that holds the workers.
            updated: the config of the model that is updated, if one is.
        """
        plan, one = self._plan, self._plan.passes[name]
        self._watchdog.expect(f"the pass {name}")
        values: dict[str, Any] = {
            "micro_batch_size_per_gpu": one.micro_batch(plan.per_rank),
            "use_dynamic_bsz": one.micro is None,  # no key of the recipe sets this switch of the critic's engine
        }
        with ExitStack() as stack:
            if updated is not None:
                values["global_batch_size"] = plan.rows_per_update(name)
                rollout = self.config.actor_rollout_ref.rollout
                stack.enter_context(configured(updated, ppo_mini_batch_size=plan.padded // one.updates))
                stack.enter_context(configured(rollout, n=1))
            stack.enter_context(carrying(self, group, **values))
            yield

    def _informative(self, batch: KVBatchMeta) -> int:
        played = self._reader.read(batch)
        return informative(played.returns, list(played.groups), played.excluded)
