"""Chats in Parquet: what is written is read, what else is read is refused."""

from __future__ import annotations

import pyarrow
import pytest
from pyarrow import parquet
from ragen_lab.sft.parquet import check_dialogue, dialogue, read, write
from refusals import refused

from ragen_verl.config import RagenConfig

CHATS = [
    {
        "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "√"}],
        "seed": k,
        "last_only": False,
    }
    for k in range(3)
]


def recipe(kwargs: dict | None = None, **rollout) -> RagenConfig:
    split = {"envs": [{"id": "FrozenLake-v0", "groups": 1, "kwargs": kwargs or {}}], "seed": 0}
    return RagenConfig.from_omegaconf(
        {"train": split, "val": {**split, "seed": 9}, "run": {"dir": "none"}, "rollout": rollout}
    )


def test_chats_and_note_come_back(tmp_path):
    note = {"seeds": [1, 2], "dialogue": dialogue(recipe())}
    assert write(iter(CHATS), note, tmp_path / "new" / "a.parquet") == 3
    assert read(tmp_path / "new" / "a.parquet") == (CHATS, note)


def test_the_same_chats_give_the_same_bytes(tmp_path):
    for name in "ab":
        write(CHATS, {"x": 1}, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_files_of_others_are_refused(tmp_path):
    with refused("There is no file"):
        read(tmp_path / "none.parquet")
    (tmp_path / "text").write_text("text")
    with refused("is no Parquet file"):
        read(tmp_path / "text")
    parquet.write_table(pyarrow.Table.from_pylist(CHATS), tmp_path / "other")
    with refused("does not say which prompts"):
        read(tmp_path / "other")
    with refused("cannot be written"):
        write(CHATS, {}, tmp_path)


@pytest.mark.parametrize(
    ("other", "key"),
    [
        (recipe(think=False), "ragen.rollout.think True and the recipe has False"),
        (recipe(system_prompt="Play."), "ragen.rollout.system_prompt"),
        (recipe(context="window", window=2), "ragen.rollout.context"),
        (recipe({"success_rate": 0.5}), "ragen.train.envs"),
    ],
)
def test_another_dialogue_is_refused(tmp_path, other, key):
    check_dialogue(tmp_path, dialogue(recipe()), dialogue(recipe(response_length=7, step_timeout=1.0)))
    with refused(key):
        check_dialogue(tmp_path, dialogue(recipe()), dialogue(other))
