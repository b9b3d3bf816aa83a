"""What asynchronous training refuses before Ray starts, and that the rest of a recipe passes with it."""

from __future__ import annotations

import pytest
from omegaconf import DictConfig
from recipe_composition import changed, composed, verl_accepts
from refusals import refused

from ragen_verl.validation.asynchronous import warmup_steps
from ragen_verl.validation.recipe import check

CORRECTION = "algorithm.rollout_correction"


@pytest.fixture(scope="module")
def recipe() -> DictConfig:
    return composed("nano/frozen_lake", "mode=async")


def test_the_mode_passes_and_says_which_trainer(recipe: DictConfig) -> None:
    check(recipe, template=False)
    assert recipe.trainer.v1.trainer_mode == "ragen_async"
    assert composed("nano/frozen_lake", "mode=sync") == composed("nano/frozen_lake")


def test_verl_takes_the_modes_configuration() -> None:
    verl_accepts(composed("nano/frozen_lake", "mode=async"))


@pytest.mark.parametrize(
    "override",
    [
        "algorithm.adv_estimator=turn_grpo",
        "algorithm.rollout_correction.rollout_is=sequence",
        "ragen.filter={strategy: top_k, value: 0.5, on_empty: refill}",
        "trainer.v1.sampler.max_off_policy_threshold=2",
        "trainer.v1.colocate_async.num_warmup_batches=0",
        "trainer.v1.colocate_async.num_warmup_batches=1.5",
    ],
)
def test_what_works_asynchronously_passes(recipe: DictConfig, override: str) -> None:
    check(changed(recipe, override), template=False)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (f"{CORRECTION}.rollout_is=null", "need importance weights: set it to token or sequence"),
        (f"{CORRECTION}.bypass_mode=true", "nothing to weigh old samples by"),
        ("actor_rollout_ref.rollout.calculate_log_probs=false", "has to be true with mode=async"),
        ("ragen.rollout.seeded_sampling=true", "draw its first random numbers again"),
        ("ragen.rollout.loss_on_env_tokens=true", "no importance weights"),
        ("trainer.v1.sampler.max_off_policy_strategy=drop", "leave out the slowest episodes"),
        ("trainer.v1.sampler.custom_sampler.path=null", "is null but has to be pkg://"),
        ("trainer.v1.sampler.custom_sampler.name=Mine", "has to be OldestGroups"),
        ("data.gen_batch_size=4", "one by one: leave it out"),
        ("trainer.v1.colocate_async.num_warmup_batches=-1", "0 or more"),
        ("trainer.v1.trainer_mode=colocate_async", "needs 'ragen_sync' or 'ragen_async'"),
        ("trainer.v1.trainer_mode=separate_async", "no step to filter: use mode=async"),
    ],
)
def test_what_cannot_work_asynchronously_is_refused(recipe: DictConfig, override: str, words: str) -> None:
    with refused(words):
        check(changed(recipe, override), template=False)


def test_groups_drawn_ahead_count_as_seeds_of_training(recipe: DictConfig) -> None:
    assert warmup_steps(changed(recipe, "trainer.v1.colocate_async.num_warmup_batches=1.5")) == 2
    assert warmup_steps(composed("nano/frozen_lake")) == 0
    steps, groups = recipe.trainer.total_training_steps, 16
    held_out = f"ragen.val.seed={10000 + steps * groups}"
    check(changed(composed("nano/frozen_lake"), held_out), template=False)
    with refused("do not overlap"):
        check(changed(recipe, held_out), template=False)
