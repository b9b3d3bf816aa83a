"""Chats as ids: those of a rollout in which the model says the same, and a mask on what it would have sampled."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import pytest
from ragen_lab.convert.chats import sft
from ragen_lab.sft.demonstrations import Demonstrator, collect, plan_of
from ragen_lab.sft.rows import answer_ids, encode
from toy_chat import GEMMA, OPENS_THOUGHTS, QWEN, STRIPS_THOUGHTS, tokenizer
from transformers import AutoTokenizer

from ragen_verl.config import RagenConfig
from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.env import make
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Generation, Limits, play
from ragen_verl.rollout.rows import rows_of

LONG = 100_000


@cache
def nano() -> Any:
    return AutoTokenizer.from_pretrained(nano_model_path())


def recipe(env: str, **rollout: Any) -> RagenConfig:
    split = {"envs": [{"id": env, "groups": 1}], "seed": 0}
    block = {"train": split, "val": {**split, "seed": 100}, "run": {"dir": "none"}}
    return RagenConfig.from_omegaconf({**block, "rollout": {"max_actions_per_turn": 2, **rollout}})


def rollout_of(record: dict, ragen: RagenConfig, chat: ChatTokens) -> list:
    """The training rows of a rollout in which the model says what was said in a record."""
    replies = iter([turn["prefix"] + turn["response"] for turn in record["turns"]])

    async def generate(ids: list[int], most: int) -> Generation:
        return Generation(answer_ids(chat, next(replies)))

    async def whole() -> Any:
        with EnvWorkers(1) as workers:
            return await play(
                make(record["env_id"]),
                seed=record["seed"],
                rollout_index=0,
                protocol=ragen.rollout.chat_protocol(),
                chat=chat,
                generate=generate,
                limits=Limits(LONG, 2 * LONG),
                workers=workers,
                context=ragen.rollout.chat_context(),
            )

    return rows_of(asyncio.run(whole()))


@pytest.mark.parametrize(
    "words",
    [nano, *(lambda one=one: tokenizer("qwen", one) for one in (QWEN, STRIPS_THOUGHTS, OPENS_THOUGHTS)),
     lambda: tokenizer("gemma", GEMMA)],
    ids=["nano", "qwen", "strips thoughts", "opens thoughts", "gemma"],
)  # fmt: skip
@pytest.mark.parametrize("rollout", [{}, {"context": "window", "window": 2}, {"context": "single_turn"}], ids=str)
def test_a_chat_has_the_ids_and_the_mask_of_a_rollout(words, rollout):
    ragen = recipe("Sokoban-v0", **rollout)
    chat = ChatTokens(words(), ragen.rollout.chat_protocol())
    records = collect(ragen, Demonstrator(0.5), plan_of(ragen, 4, 5000, 1))
    assert max(len(one["turns"]) for one in records) > 2
    for record in records:
        rows = rollout_of(record, ragen, chat)
        chats = [one["messages"] for one in sft([record])]
        assert len(rows) == len(chats)
        for row, messages in zip(rows, chats, strict=True):
            ids, mask = encode(chat, messages, ragen.rollout.chat_context().row_per_turn)
            assert ids == row.prompt_ids + row.response_ids
            assert mask == [0] * len(row.prompt_ids) + row.response_mask


@pytest.mark.parametrize("think", [True, False])
def test_the_mask_covers_the_answers_and_nothing_else(think):
    ragen = recipe("FrozenLake-v0", think=think)
    chat = ChatTokens(nano(), ragen.rollout.chat_protocol())
    records = collect(ragen, Demonstrator(0.5), plan_of(ragen, 20, 5000, 1))
    for record in records:
        (found,) = sft([record])
        ids, mask = encode(chat, found["messages"])
        said, part = [], []
        for one, counts in zip(ids, mask, strict=True):
            part = [*part, one] if counts else part
            if counts and one == chat.end_of_turn_id:
                said.append(nano().decode(part))
                part = []
        assert said == [turn["response"] + "<|im_end|>" for turn in record["turns"]] and not part
