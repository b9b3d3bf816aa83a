"""The passes of a step over the models, as the recipe has them."""

from __future__ import annotations

import math

from omegaconf import DictConfig

from ragen_verl.config import RagenConfig
from ragen_verl.training.step_plan import ModelPass

__all__ = ["passes"]


def passes(config: DictConfig, ragen: RagenConfig, kept: int, *, reference: bool, critic: bool) -> dict[str, ModelPass]:
    """Name -> pass, in the order in which a step makes them.

    Args:
        config: the whole verl configuration.
        ragen: its `ragen` block.
        kept: trajectories that the update sees.
        reference: whether there is a reference policy.
        critic: whether there is a critic.
    """
    model, rollout, block = config.actor_rollout_ref, config.actor_rollout_ref.rollout, config.critic
    actor, ref = model.actor, model.ref
    wanted = {
        "actor": (actor.use_dynamic_bsz, actor.ppo_micro_batch_size_per_gpu, _updates(actor, ragen, kept, rollout.n)),
        # also in bypass mode, where the distance from the engine is measured by such a pass
        "old_log_prob": (actor.use_dynamic_bsz, rollout.log_prob_micro_batch_size_per_gpu, 1),
    }
    if reference:
        wanted["ref"] = (ref.log_prob_use_dynamic_bsz, ref.log_prob_micro_batch_size_per_gpu, 1)
    if critic:
        updates = _updates(block, ragen, kept, rollout.n)
        wanted["critic"] = (block.use_dynamic_bsz, block.ppo_micro_batch_size_per_gpu, updates)
        wanted["values"] = (block.use_dynamic_bsz, block.forward_micro_batch_size_per_gpu, 1)
    return {name: ModelPass(updates, None if packed else micro) for name, (packed, micro, updates) in wanted.items()}


def _updates(block: DictConfig, ragen: RagenConfig, kept: int, members: int) -> int:
    """Optimiser updates per epoch: as in a step that keeps everything, or in proportion, rounded, one at least."""
    if ragen.filter.updates == "constant":
        return ragen.train.groups // block.ppo_mini_batch_size
    return max(1, math.floor(kept / (block.ppo_mini_batch_size * members) + 0.5))
