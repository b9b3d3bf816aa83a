"""What asynchronous training refuses before Ray starts, and that the rest of a recipe passes with it."""

from __future__ import annotations

import pytest
from omegaconf import DictConfig
from recipe_composition import changed, composed, verl_accepts
from refusals import refused

from ragen_verl.validation.recipe import check
from ragen_verl.validation.trainer import warmup_steps

CORRECTION = "algorithm.rollout_correction"
ENGINE = "actor_rollout_ref.rollout"


@pytest.fixture(scope="module")
def recipe() -> DictConfig:
    return composed("nano/frozen_lake", "mode=async")


@pytest.fixture(scope="module")
def disaggregated() -> DictConfig:
    return composed("nano/frozen_lake", "mode=disaggregated")


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
        "ragen.filter={strategy: top_k, value: 0.5, on_empty: dynamic_sampling}",
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
        ("trainer.v1.sampler.custom_sampler.path=pkg://mine", "bring their own sampler"),
        ("trainer.v1.sampler.sampler_kwargs={target: 3}", "bring their own sampler"),
        ("data.gen_batch_size=4", "one by one: leave it out"),
        ("trainer.v1.colocate_async.num_warmup_batches=-1", "0 or more"),
        ("trainer.v1.trainer_mode=colocate_async", "needs one of 'ragen_sync', 'ragen_async', 'ragen_disaggregated'"),
        ("trainer.v1.trainer_mode=separate_async", "use mode=async or mode=disaggregated"),
        ("actor_rollout_ref.hybrid_engine=false", "use mode=disaggregated"),
    ],
)
def test_what_cannot_work_asynchronously_is_refused(recipe: DictConfig, override: str, words: str) -> None:
    with refused(words):
        check(changed(recipe, override), template=False)


def test_an_engine_on_devices_of_its_own_passes(disaggregated: DictConfig) -> None:
    check(disaggregated, template=False)
    verl_accepts(disaggregated)
    assert disaggregated.trainer.v1.trainer_mode == "ragen_disaggregated"
    check(
        changed(disaggregated, f"{ENGINE}.n_gpus_per_node=4", f"{ENGINE}.tensor_model_parallel_size=2"), template=False
    )
    for mode, devices in (("sync", 2), ("async", 2), ("disaggregated", 3)):
        recipe = composed("nano/frozen_lake", f"mode={mode}", "trainer.n_gpus_per_node=2")
        assert recipe.ray_kwargs.ray_init.num_gpus == devices


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("actor_rollout_ref.hybrid_engine=true", "has to be false with mode=disaggregated"),
        ("trainer.v1.separate_async.parameter_sync_step=2", "the filter needs whole steps"),
        ("trainer.v1.separate_async.hybrid_rollout.enable_switch=true", "no engine on the trainer's devices"),
        ("trainer.v1.separate_async.num_warmup_batches=-1", "0 or more"),
        (f"{CORRECTION}.rollout_is=null", "mode=disaggregated trains on samples of older weights"),
        (f"{ENGINE}.nnodes=0", "one replica or more of 1 devices of its own"),
        (f"{ENGINE}.tensor_model_parallel_size=2", "one replica or more of 2 devices of its own"),
        (f"{ENGINE}.checkpoint_engine.backend=naive", "cannot reach an engine on other devices"),
        (f"{ENGINE}.checkpoint_engine.backend=nccl", "needs cupy: make add PACKAGE=cupy-cuda13x"),
        ("actor_rollout_ref.model.lora_rank=8", "weights without the adapter"),
    ],
)
def test_what_no_disaggregated_engine_can_do_is_refused(disaggregated: DictConfig, override: str, words: str) -> None:
    with refused(words):
        check(changed(disaggregated, override), template=False)


@pytest.mark.parametrize("mode", ["async", "disaggregated"])
def test_groups_drawn_ahead_count_as_seeds_of_training(mode: str) -> None:
    recipe = composed("nano/frozen_lake", f"mode={mode}")
    warmup = {"async": "colocate_async", "disaggregated": "separate_async"}[mode]
    assert warmup_steps(changed(recipe, f"trainer.v1.{warmup}.num_warmup_batches=1.5")) == 2
    shared = "trainer.v1.colocate_async.num_warmup_batches=3"
    assert warmup_steps(composed("nano/frozen_lake", f"mode={mode}", shared)) == 3
    assert warmup_steps(composed("nano/frozen_lake")) == 0
    steps, groups = recipe.trainer.total_training_steps, 16
    held_out = f"ragen.val.seed={10000 + steps * groups}"
    check(changed(composed("nano/frozen_lake"), held_out), template=False)
    with refused("do not overlap"):
        check(changed(recipe, held_out), template=False)
