"""Check `ragen.filter` against the sizes of a step, the estimator and the engine."""

from __future__ import annotations

from omegaconf import DictConfig

from ragen_verl.advantages import ESTIMATORS
from ragen_verl.config import RagenConfig
from ragen_verl.errors import RecipeError

__all__ = ["check_filter", "check_groups"]


def check_filter(config: DictConfig, ragen: RagenConfig) -> None:
    """Refuse a filter that lacks its input, that cannot compare anything, or that would keep nothing.

    Raises:
        RecipeError: one sentence that names the key and what to change.
    """
    check_groups(ragen, config.actor_rollout_ref.rollout.n)
    if ragen.filter.needs_entropy and not config.actor_rollout_ref.rollout.calculate_log_probs:
        raise RecipeError(
            f"ragen.filter.score {ragen.filter.score} is made of the engine's log-probabilities: set "
            "actor_rollout_ref.rollout.calculate_log_probs to true, or use another score."
        )
    name = config.algorithm.adv_estimator
    if ragen.filter.cross_fit and name not in ESTIMATORS:
        raise RecipeError(
            f"ragen.filter.cross_fit needs baselines within half a group, and algorithm.adv_estimator {name} is verl's "
            "and sees whole groups: set cross_fit to false, or use an estimator of ragen_verl."
        )
    if ragen.filter.dynamic_sampling and config.data.gen_batch_size not in (None, 1):
        raise RecipeError(
            f"data.gen_batch_size is {config.data.gen_batch_size} but ragen.filter.on_empty dynamic_sampling takes "
            "groups off the data stream one by one: leave it out."
        )


def check_groups(ragen: RagenConfig, group_size: int) -> None:
    """Refuse a filter that cannot compare anything, or that would keep nothing.

    Args:
        ragen: the recipe's block.
        group_size: N, trajectories per group (`actor_rollout_ref.rollout.n`).

    Raises:
        RecipeError: it compares trajectories and N is too small, or it asks for less than one group or more than
            all.
    """
    chosen, groups = ragen.filter, ragen.train.groups
    if chosen.compares_trajectories and group_size < 2:
        raise RecipeError(
            f"ragen.filter (strategy {chosen.strategy}, on_empty {chosen.on_empty}) compares the trajectories of a "
            f"group but actor_rollout_ref.rollout.n is {group_size}, and one return has no standard deviation: use "
            "n of 2 or more, or a score of single trajectories (mean, sum, entropy, length) that keeps zero "
            "variance."
        )
    if chosen.cross_fit and group_size < 4:
        raise RecipeError(
            f"ragen.filter.cross_fit compares the trajectories of half a group but actor_rollout_ref.rollout.n is "
            f"{group_size}: use n of 4 or more, or set cross_fit to false."
        )
    value = chosen.all_options().get("value")
    if ragen.kept_groups < 1:
        raise RecipeError(
            f"ragen.filter.value {value:g} of {groups} groups is less than one group: "
            f"use {1 / groups:.3g} or more, or more groups in ragen.train.envs."
        )
    if chosen.strategy == "top_k_count" and value > groups:
        raise RecipeError(
            f"ragen.filter.value is {value:g} but a step has {groups} groups: "
            "use fewer, or more groups in ragen.train.envs."
        )
    if chosen.dynamic_sampling and chosen.target(groups) > groups + chosen.extra_groups(groups):
        raise RecipeError(
            f"ragen.filter.dynamic_sampling_groups is {chosen.target(groups)} but a step generates "
            f"{groups + chosen.extra_groups(groups)} groups at most (ragen.train.envs and "
            "ragen.filter.dynamic_sampling_limit): raise the limit."
        )
