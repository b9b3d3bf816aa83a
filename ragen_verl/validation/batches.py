"""Check the sizes of updates, and how devices are shared out."""

from __future__ import annotations

import math

from omegaconf import DictConfig, OmegaConf

from ragen_verl.advantages import ESTIMATORS
from ragen_verl.config import RagenConfig
from ragen_verl.errors import RecipeError

__all__ = ["check_batches"]


def check_batches(config: DictConfig, ragen: RagenConfig) -> None:
    """Refuse mini-batches, ranks and engines that do not divide each other.

    Raises:
        RecipeError: one sentence that names the key and what to change.
    """
    n, groups = config.actor_rollout_ref.rollout.n, ragen.train.groups
    if config.data.train_batch_size != groups:
        raise RecipeError(
            f"data.train_batch_size is {config.data.train_batch_size} but ragen.train.envs has {groups} groups: "
            "leave the first out, it follows from the second."
        )
    _check_engines(config)
    ranks = _data_parallel_ranks(config)
    blocks = {"actor_rollout_ref.actor": config.actor_rollout_ref.actor}
    if getattr(ESTIMATORS.get(config.algorithm.adv_estimator), "needs_critic", False):
        blocks["critic"] = config.critic
    for path, block in blocks.items():
        mini = block.ppo_mini_batch_size
        if groups % mini:  # a whole number of 1 or more, by the table of single keys
            raise RecipeError(
                f"{path}.ppo_mini_batch_size {mini} (groups per update) does not divide the {groups} groups of a step: "
                "change it, or the groups in ragen.train.envs."
            )
        rows = mini * n  # after a filter there are fewer; the trainer then computes other sizes
        if rows % ranks:
            raise RecipeError(
                f"One update of {path} has {rows} trajectories (ppo_mini_batch_size x rollout.n), which {ranks} "
                "data-parallel ranks cannot share: change ppo_mini_batch_size, rollout.n or the number of devices."
            )


def _check_engines(config: DictConfig) -> None:
    """Refuse an engine that needs more devices than there are for generation, or that they cannot be shared out to."""
    rollout, path = config.actor_rollout_ref.rollout, "actor_rollout_ref.rollout"
    apart = rollout.get("nnodes", 0) > 0  # disaggregated: the engines have devices of their own
    owner = rollout if apart else config.trainer
    devices = owner.n_gpus_per_node * owner.nnodes
    sizes = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
    needed = math.prod(rollout[size] for size in sizes)
    if devices % needed:
        raise RecipeError(
            f"One engine takes {needed} devices ({path}: {' x '.join(sizes)}), and there are {devices} for generation: "
            "lower one of the three, or change trainer.n_gpus_per_node."
        )


def _data_parallel_ranks(config: DictConfig) -> int:
    devices = config.trainer.nnodes * config.trainer.n_gpus_per_node
    actor = config.actor_rollout_ref.actor
    if "megatron" in actor:
        engine = actor.megatron
        shared = engine.tensor_model_parallel_size * engine.pipeline_model_parallel_size * engine.context_parallel_size
    else:
        shared = max(
            actor.get("ulysses_sequence_parallel_size", 1),
            OmegaConf.select(actor, "fsdp_config.ulysses_sequence_parallel_size", default=1),
        )
    if devices % shared:
        raise RecipeError(
            f"{devices} devices cannot be divided into model-parallel groups of {shared}: "
            "change trainer.n_gpus_per_node or the actor's parallel sizes."
        )
    return devices // shared
