"""The dataset of verl's supervised trainer: the ids of a rollout, and the stock dataset's texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from ragen_lab.convert.chats import sft
from ragen_lab.sft.check import recipe_of, verl_config
from ragen_lab.sft.dataset import DemonstrationDataset
from ragen_lab.sft.demonstrations import Demonstrator, collect, plan_of
from ragen_lab.sft.parquet import write
from ragen_lab.sft.rows import encode
from transformers import AutoTokenizer
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

from ragen_verl.config import RagenConfig
from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.rollout.chat import ChatTokens

COUNT = 6


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict], RagenConfig]:
    split = {"envs": [{"id": "Sokoban-v0", "groups": 1}], "seed": 0}
    block = {"train": split, "val": {**split, "seed": 100}, "run": {"dir": "none"}}
    ragen = RagenConfig.from_omegaconf({**block, "rollout": {"max_actions_per_turn": 2}})
    chats = list(sft(collect(ragen, Demonstrator(0.5), plan_of(ragen, COUNT, 5000, 1))))
    file = tmp_path_factory.mktemp("data") / "chats.parquet"
    write(({**one, "last_only": place == 1} for place, one in enumerate(chats)), {}, file)
    return file, chats, ragen


def dataset(kind: type, file: Path, **more: Any) -> Any:
    config = OmegaConf.create(
        {"pad_mode": "no_padding", "max_length": 2000, "truncation": "error", "ragen_rollout": {}, **more}
    )
    return kind([str(file)], AutoTokenizer.from_pretrained(nano_model_path()), config)


def test_rows_are_the_ids_and_the_mask_of_a_rollout(made):
    file, chats, ragen = made
    found = dataset(DemonstrationDataset, file)
    chat = ChatTokens(found.tokenizer, ragen.rollout.chat_protocol())
    assert len(found) == COUNT
    for place in range(COUNT):
        ids, mask = encode(chat, chats[place]["messages"], last_only=place == 1)
        row = found[place]
        assert (row["input_ids"].tolist(), row["loss_mask"].tolist()) == (ids, mask)
        assert row["position_ids"].tolist() == list(range(len(ids)))


def test_the_stock_dataset_reads_the_file_and_masks_the_tag_too(made):
    stock, ours = (dataset(kind, made[0]) for kind in (MultiTurnSFTDataset, DemonstrationDataset))
    for place in (0, 2):
        theirs, mine = stock[place], ours[place]
        text = stock.tokenizer.decode(theirs["input_ids"])
        assert text == stock.tokenizer.decode(mine["input_ids"]) + "\n"
        more = stock.tokenizer.decode(theirs["input_ids"][theirs["loss_mask"] == 1])
        less = stock.tokenizer.decode(mine["input_ids"][mine["loss_mask"] == 1])
        assert more == "".join(f"<think>{one}<|im_end|>\n" for one in less.split("<|im_end|>")[:-1])


def test_a_chat_that_is_too_long_is_an_error(made):
    with pytest.raises(ValueError, match=r"data\.max_length is 50"):
        dataset(DemonstrationDataset, made[0], max_length=50)[0]


@pytest.mark.parametrize("recipe", ["nano/frozen_lake", "paper/sokoban_starpo_s", "paper/frozen_lake_ragen2"])
def test_blocks_become_the_dataclasses_of_verls_trainer(recipe, tmp_path):
    config, _, block = recipe_of(recipe, [], machine=False)
    made = verl_config(config, block, tmp_path / "data.parquet", tmp_path / "out")
    kinds = [type(omega_conf_to_dataclass(made[name])).__name__ for name in ("engine", "optim", "checkpoint")]
    assert kinds == ["FSDPEngineConfig", "FSDPOptimizerConfig", "CheckpointConfig"]
    assert made.data.train_batch_size % made.data.micro_batch_size_per_gpu == 0
