"""A supervised training before it starts: what verl gets of the recipe, and what is refused."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from ragen_lab.convert.chats import sft
from ragen_lab.sft.check import prepare, recipe_of
from ragen_lab.sft.dataset import DemonstrationDataset
from ragen_lab.sft.demonstrations import SEED, Demonstrator, collect, plan_of
from ragen_lab.sft.parquet import dialogue, write
from refusals import refused

RECIPE, COUNT = "nano/frozen_lake", 20


def demonstrated(file: Path, overrides: tuple[str, ...] = (), seed: int = SEED) -> Path:
    config, ragen, _ = recipe_of(RECIPE, overrides)
    records = collect(ragen, Demonstrator(), plan_of(ragen, COUNT, seed, config.trainer.total_training_steps))
    note = {"dialogue": dialogue(ragen), "seeds": [seed, seed + COUNT]}
    last_only = ragen.rollout.chat_context().row_per_turn
    write(({**chat, "last_only": last_only} for chat in sft(records)), note, file)
    return file


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demonstrated(tmp_path_factory.mktemp("data") / "lake.parquet")


def test_verl_gets_the_recipes_model_sizes_and_optimiser(data, tmp_path):
    recipe, _, _ = recipe_of(RECIPE, [])
    actor = recipe.actor_rollout_ref.actor
    made = prepare(RECIPE, ["sft.batch_size=6", "sft.epochs=2"], data, tmp_path / "out")
    assert (made.chats, made.steps) == (COUNT, 6)
    assert made.config.model == recipe.actor_rollout_ref.model and made.config.engine == actor.fsdp_config
    assert made.config.optim.lr == pytest.approx(10 * actor.optim.lr)
    assert made.config.optim.weight_decay == actor.optim.weight_decay
    assert made.config.data.max_length == recipe.data.max_prompt_length + recipe.data.max_response_length
    assert (made.config.data.train_batch_size, made.config.data.micro_batch_size_per_gpu) == (6, 6)
    assert made.config.trainer.device == recipe.trainer.device
    place = made.config.data.custom_cls
    assert getattr(import_module(place.path.removeprefix("pkg://")), place.name) is DemonstrationDataset
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["sft.epoch=2"], "did you mean sft.epochs"),
        (["sft.lr=0"], "sft.lr is 0"),
        (["sft.warmup=1"], "sft.warmup is 1"),
        (["sft.batch_size=21"], "has 20 chats and sft.batch_size is 21"),
        (["sft.batch_size=3", "trainer.n_gpus_per_node=2"], "cannot be shared by 2 devices"),
        (["trainer.nnodes=2"], "trainer.nnodes is 2"),
        (["ragen.rollout.think=false"], "was made with ragen.rollout.think True and the recipe has False"),
        (["ragen.train.envs.0.kwargs.size=5"], "was made with ragen.train.envs"),
        ([f"ragen.val.seed={SEED}"], "and ragen.val"),
        (["ragen.rollout.response_length=8"], "ragen.rollout.response_length is 8: raise it"),
        (["data.max_prompt_length=20", "data.max_response_length=64"], "add up to 84"),
        (["actor_rollout_ref.model.path=/no/such/model"], "path is /no/such/model, which is no folder"),
        (["actor_rollout_ref.model.lora_rank=8"], "lora_rank is 8"),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else None,
)
def test_what_cannot_work_is_refused(data, tmp_path, overrides, words):
    with refused(words):
        prepare(RECIPE, ["sft.batch_size=4", *overrides], data, tmp_path / "out")


def test_a_folder_with_something_in_it_is_refused(data, tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file"):
        with refused("is there already"):
            prepare(RECIPE, [], data, place)


def test_demonstrations_of_a_window_fit_their_recipe(tmp_path):
    window = ("ragen.rollout.context=window", "ragen.rollout.window=2", "data.max_prompt_length=600")
    file = demonstrated(tmp_path / "window.parquet", window)
    assert prepare(RECIPE, [*window, "sft.batch_size=10"], file, tmp_path / "out").steps == 6
    with refused("ragen.rollout.context"):
        prepare(RECIPE, [], file, tmp_path / "out")


@pytest.mark.parametrize("recipe", ["paper/sokoban_starpo_s", "paper/frozen_lake_starpo_s"])
def test_the_papers_recipes_have_what_supervised_training_takes(recipe):
    config, _, block = recipe_of(recipe, [], machine=False)
    assert block.peak(config.actor_rollout_ref.actor.optim.lr) == pytest.approx(1e-5)
    assert config.actor_rollout_ref.actor.strategy == "fsdp2" and config.actor_rollout_ref.model.lora_rank == 0
