"""Demonstrations: who plays which turn, in which words, from which seeds, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from ragen_lab.convert.chats import sft
from ragen_lab.sft.demonstrations import Demonstrator, collect, plan_of
from ragen_lab.sft.parquet import read
from refusals import refused
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.config import RagenConfig
from ragen_verl.env import make
from ragen_verl.rollout.protocols.ragen import Ragen

SEED, STEPS = 5_000, 30


def recipe(*ids: str, **rollout: Any) -> RagenConfig:
    envs = [{"id": one, "groups": 2} for one in ids or ("FrozenLake-v0",)]
    block = {"train": {"envs": envs, "seed": 1000}, "val": {"envs": envs, "seed": 100}, "run": {"dir": "none"}}
    return RagenConfig.from_omegaconf({**block, "rollout": rollout})


def played(ragen: RagenConfig, count: int = 12, seed: int = SEED, **policy: Any) -> list[dict]:
    return collect(ragen, Demonstrator(**policy), plan_of(ragen, count, seed, STEPS))


def words(records: list[dict]) -> list:
    return [[one["messages"], one["seed"], one["env"]] for one in sft(records)]


@pytest.mark.parametrize("id", ["FrozenLake-v0", "Sokoban-v0"])
def test_an_optimal_turn_is_the_oracles_plan(id):
    ragen, protocol = recipe(id, max_actions_per_turn=3), Ragen(max_actions_per_turn=3)
    for record in played(ragen):
        env = make(id)
        env.reset(seed=record["seed"], options={"rollout_index": 0})
        for turn in record["turns"]:
            plan = env.oracle()[: protocol.budget(env)]
            if plan:
                assert turn["prefix"] + turn["response"] == (
                    f"<think>{' '.join(plan)}</think><answer>{' || '.join(plan[:3])}</answer>"
                )
            for action in turn["executed"]:
                env.step(action)


def test_the_share_of_optimal_turns_is_the_arguments():
    ragen, shares = recipe(max_turns=1), []
    for optimal in (0.0, 0.3, 1.0):
        records = played(ragen, 400, optimal=optimal)
        likely = []
        for record in records:
            env = make("FrozenLake-v0")
            env.reset(seed=record["seed"], options={"rollout_index": 0})
            plan = env.oracle()[:10]
            likely.append(record["turns"][0]["response"].startswith(" ".join(plan) + "</think>"))
        shares.append(np.mean(likely))
        assert all(one["metrics"]["valid_action_ratio"] == 1 for one in records), "random actions are known ones"
    # five random actions are hardly ever the plan
    assert shares[0] < 0.02 and shares[2] == 1 and abs(shares[1] - 0.3) < 4 * (0.3 * 0.7 / 400) ** 0.5


@pytest.mark.parametrize(
    ("rollout", "policy", "start", "end"),
    [
        ({}, {"thoughts": "none"}, "<think></think><answer>", "</answer>"),
        ({"think": False}, {}, "<answer>", "</answer>"),
        ({"action_sep": ";", "think": False}, {}, "<answer>", "</answer>"),
    ],
)
def test_answers_have_the_form_of_the_recipe(rollout, policy, start, end):
    for chat, _, _ in words(played(recipe(**rollout), **policy)):
        for message in chat:
            if message["role"] == "assistant":
                assert message["content"].startswith(start) and message["content"].endswith(end)
                assert "||" not in message["content"] or "action_sep" not in rollout


def test_the_same_arguments_give_the_same_chats():
    ragen = recipe("FrozenLake-v0", "Sokoban-v0")
    first = words(played(ragen, optimal=0.5))
    assert first == words(played(ragen, optimal=0.5))
    assert first != words(played(ragen, seed=SEED + 50, optimal=0.5))
    assert [env for _, _, env in first] == ["FrozenLake", "FrozenLake", "Sokoban", "Sokoban"] * 3
    assert [seed for _, seed, _ in first] == list(range(SEED, SEED + 12))


@pytest.mark.parametrize(
    ("seed", "split"),
    [(90, "val"), (101, "val"), (989, "train"), (1000 + 2 * STEPS - 1, "train")],
)
def test_seeds_of_the_recipe_are_refused(seed, split):
    with refused(f"and ragen.{split} "):
        plan_of(recipe(), 12, seed, STEPS)


def test_seeds_just_beside_the_recipes_are_taken():
    assert len(plan_of(recipe(), 12, 102, STEPS)) == 12
    assert len(plan_of(recipe(), 12, 988, STEPS)) == 12
    assert len(plan_of(recipe(), 12, 1000 + 2 * STEPS, STEPS)) == 12


def test_an_environment_without_an_oracle_is_refused():
    ragen = recipe("gymnasium:CliffWalking-v1")
    with refused("gymnasium:CliffWalking-v1 has no oracle"):
        played(ragen)
    assert played(ragen, optimal=0.0)


def test_the_command_writes_the_chats_and_what_they_are(tmp_path):
    file = tmp_path / "here" / "lake.parquet"
    done = CliRunner().invoke(
        app, ["collect", "nano/frozen_lake", "ragen.rollout.max_turns=3", "--episodes", "7", "--out", str(file)]
    )
    assert done.exit_code == 0 and "7 chats written" in done.output, done.output
    chats, note = read(file)
    assert [one["seed"] for one in chats] == list(range(1_000_000_000, 1_000_000_007))
    assert all(one["success"] and one["last_only"] is False for one in chats)
    assert note["dialogue"]["ragen.rollout.max_turns"] == 3 and note["seeds"] == [1_000_000_000, 1_000_000_007]
    assert json.dumps(note)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nano/frozen_lake", "--out", "x.jsonl"], "end it with .parquet"),
        (["nano/frozen_lake", "--out", "x.parquet", "--seed", "123"], "and ragen.val 123 to 378"),
        (["nano/frozen_lake", "ragen.rollout.think=false", "--thoughts", "none", "--out", "x.parquet"], "does nothing"),
        (["nano/frozen_lak", "--out", "x.parquet"], "did you mean nano/frozen_lake"),
    ],
)
def test_what_cannot_work_is_refused(words, why, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["collect", *words])
    assert done.exit_code == 2 and why in done.output.replace("\n", " "), done.output
    assert not list(tmp_path.iterdir())
