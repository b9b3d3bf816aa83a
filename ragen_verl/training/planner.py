"""The plan of the current step, and the calls of verl's workers that follow it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ragen_verl.config import RagenConfig
from ragen_verl.patches import varlen
from ragen_verl.patches.prefixes import ASKED
from ragen_verl.training.batch import TrajectoryBatch, weigh_advantages
from ragen_verl.training.data_plane import Batch
from ragen_verl.training.losses import TURN_MEAN, turn_weights
from ragen_verl.training.overrides import temporarily, with_extra_info
from ragen_verl.training.step_plan import ModelPass, StepPlan

__all__ = ["MESH", "Planner", "data_parallel_ranks", "passes", "turns_weighed_here"]

MESH = "actor"
"""verl's name for the actor's workers as data-parallel ranks."""


class Planner:
    """Makes the plan of each step from the recipe, and divides the calls of the step by it.

    Args:
        config: verl's whole configuration.
        ragen: its `ragen` block.
    """

    plan: StepPlan  # of the current step

    def __init__(self, config: DictConfig, ragen: RagenConfig) -> None:
        self.config, self.ragen = config, ragen

    def begin(self, trained: TrajectoryBatch, ranks: int, *, reference: bool, critic: bool) -> StepPlan:
        """Make the plan for these trajectories (at least one) and this number of data-parallel ranks; see `passes`."""
        wanted = passes(self.config, self.ragen, len(trained), reference=reference, critic=critic)
        self.plan = StepPlan.of(trained, ranks, wanted, self.ragen.share_prefixes and _tree_attention(self.config))
        return self.plan

    def reorder(self, batch: Batch, step: int) -> None:
        """Put the rows, with verl's padding, into the order of the plan."""
        lengths = [tag["seq_len"] for tag in batch.tags]
        batch.reorder(self.plan.order(batch.keys, lengths, (self.ragen.train.seed, step)))

    @contextmanager
    def cut(self, trainer: Any, name: str, group: str, updated: DictConfig | None = None) -> Iterator[None]:
        """While open, calls of a worker group divide the rows of the step as the plan says.

        verl divides its seq-mean losses by the `ppo_mini_batch_size * rollout.n` rows of a mini-batch, padding included
        (core_algos.agg_loss). Here they are divided by the mean number of real rows in an update.

        Args:
            trainer: verl's trainer.
            name: the name of the pass.
            group: the name of the trainer's attribute that holds the workers.
            updated: the config of the model that is updated, if one is.
        """
        plan, one = self.plan, self.plan.passes[name]
        values: dict[str, Any] = {
            "micro_batch_size_per_gpu": one.micro_batch(plan.per_rank),
            "use_dynamic_bsz": one.micro is None,  # no key of the recipe sets this switch of the critic's engine
            ASKED: plan.shares or None,
        }
        with ExitStack() as stack:
            if updated is not None:
                values["global_batch_size"] = plan.rows_per_update(name)
                stack.enter_context(temporarily(updated, ppo_mini_batch_size=plan.padded // one.updates))
                stack.enter_context(temporarily(self.config.actor_rollout_ref.rollout, n=1))
            stack.enter_context(with_extra_info(trainer, group, **values))
            yield

    def weigh(self, batch: Batch) -> None:
        """Scale advantages by the kept share of a step, and give all turns equal weight, as the recipe says."""
        factor, ends = self.loss_scale(), self.plan.trajectories.ends(batch.keys)
        if self.config.actor_rollout_ref.actor.policy_loss.loss_mode == TURN_MEAN:
            weigh_advantages(batch, lambda mask: factor * turn_weights(mask, ends))
        elif factor != 1:
            weigh_advantages(batch, lambda mask: factor * mask)

    def loss_scale(self) -> float:
        """The kept share of a step's P * N trajectories, or its square root; at most 1, also with dynamic sampling."""
        if self.ragen.filter.loss_scaling == "none":
            return 1.0
        step = self.ragen.train.groups * self.config.actor_rollout_ref.rollout.n
        share = min(1.0, len(self.plan.trajectories) / step)
        return share if self.ragen.filter.loss_scaling == "linear" else share**0.5


def turns_weighed_here(config: DictConfig) -> AbstractContextManager[None]:
    """A context for the start of the workers, whose loss does not know where turns end: `Planner.weigh` weighs them."""
    policy_loss = config.actor_rollout_ref.actor.policy_loss
    mode = "vanilla" if policy_loss.loss_mode == TURN_MEAN else policy_loss.loss_mode
    return temporarily(policy_loss, loss_mode=mode)


def passes(config: DictConfig, ragen: RagenConfig, kept: int, *, reference: bool, critic: bool) -> dict[str, ModelPass]:
    """Name -> pass, in the order in which a step makes them.

    Args:
        config: the whole verl configuration.
        ragen: its `ragen` block.
        kept: trajectories that the update uses.
        reference: whether there is a reference policy.
        critic: whether there is a critic.
    """
    model, rollout, block = config.actor_rollout_ref, config.actor_rollout_ref.rollout, config.critic
    actor, ref = model.actor, model.ref
    wanted = {
        "actor": (
            actor.use_dynamic_bsz,
            actor.ppo_micro_batch_size_per_gpu,
            ragen.updates(actor.ppo_mini_batch_size, kept / rollout.n),
        ),
        # also in bypass mode, where the distance from the engine is measured by such a pass
        "old_log_prob": (actor.use_dynamic_bsz, rollout.log_prob_micro_batch_size_per_gpu, 1),
    }
    if reference:
        wanted["ref"] = (ref.log_prob_use_dynamic_bsz, ref.log_prob_micro_batch_size_per_gpu, 1)
    if critic:
        updates = ragen.updates(block.ppo_mini_batch_size, kept / rollout.n)
        wanted["critic"] = (block.use_dynamic_bsz, block.ppo_micro_batch_size_per_gpu, updates)
        wanted["values"] = (block.use_dynamic_bsz, block.forward_micro_batch_size_per_gpu, 1)
    return {name: ModelPass(updates, None if packed else micro) for name, (packed, micro, updates) in wanted.items()}


def _tree_attention(config: DictConfig) -> bool:
    model = config.actor_rollout_ref
    attention = OmegaConf.select(model, "model.override_config.attn_implementation")
    return model.actor.strategy in ("fsdp", "fsdp2") and attention == varlen.NAME


def data_parallel_ranks(group: Any) -> int:
    """The number of data-parallel ranks of the actor's workers, asked once (as in trainer_base.py:1611-1617)."""
    if MESH not in group._dispatch_info:
        group._dispatch_info[MESH] = group._query_dispatch_info(MESH)
    return max(group._dispatch_info[MESH]) + 1
