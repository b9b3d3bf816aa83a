"""The dataset of environments and seeds."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from ragen_verl.errors import RecipeError
from ragen_verl.training.dataset import EnvDataset

RAGEN = {
    "train": {
        "envs": [{"id": "Bandit-v0", "groups": 2}, {"id": "FrozenLake-v0", "groups": 3, "name": "Ice"}],
        "seed": 50,
    },
    "val": {"envs": [{"id": "Bandit-v0", "groups": 4}], "seed": 7},
    "run": {"dir": "runs/test"},
}


def dataset(path: str, **kwargs) -> EnvDataset:
    return EnvDataset(path, tokenizer=None, processor=None, config=OmegaConf.create({"ragen": RAGEN}), **kwargs)


def test_every_step_plays_new_seeds_in_the_same_places() -> None:
    rows = [dataset("env://train")[index] for index in range(10)]
    assert [row["extra_info"]["seed"] for row in rows] == list(range(50, 60))
    assert [row["data_source"] for row in rows] == ["Bandit", "Bandit", "Ice", "Ice", "Ice"] * 2
    assert [row["extra_info"]["env_id"] for row in rows[:3]] == ["Bandit-v0", "Bandit-v0", "FrozenLake-v0"]


def test_validation_is_the_fixed_seeds_once() -> None:
    val = dataset(["env://val"])
    assert [val[index]["extra_info"]["seed"] for index in range(len(val))] == [7, 8, 9, 10]


def test_number_of_rows_can_be_limited() -> None:
    assert len(dataset("env://val", max_samples=3)) == 3


def test_other_paths_are_refused() -> None:
    with pytest.raises(RecipeError, match="env://train"):
        dataset("train.parquet")


def test_a_config_without_the_block_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"data\.ragen"):
        EnvDataset("env://val", tokenizer=None, config=OmegaConf.create({}))
