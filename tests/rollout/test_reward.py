"""Rewards beside the environment's: their parts in rows, returns, metrics and records, and what of them is refused."""

from __future__ import annotations

import asyncio
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_chat import Engine, Walk, say, tokenizer

from ragen_verl.config import RagenConfig
from ragen_verl.config.rewards import RewardBlocks
from ragen_verl.config.schema import parse
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.context import Full, SingleTurn
from ragen_verl.rollout.episode import Limits, play
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.reading import decode
from ragen_verl.rollout.record import encode
from ragen_verl.rollout.reward import REWARDS, Rewards, reward
from ragen_verl.rollout.rows import rows_of
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn

LIMITS = Limits(response_length=200, context_length=5000)


def played(rewards: Rewards, context=None, limits: Limits = LIMITS) -> Trajectory:
    words, rules = tokenizer("qwen"), Ragen(max_turns=3)
    said = [
        say(words, f"so {'x ' * n}</think><answer>{action}</answer>")
        for n, action in enumerate(["Right", "fly", "Left"])
    ]
    with EnvWorkers(1) as workers:
        return asyncio.run(
            play(
                Walk(goal=99),
                seed=3,
                rollout_index=0,
                protocol=rules,
                chat=ChatTokens(words, rules),
                generate=Engine(said),
                limits=limits,
                workers=workers,
                context=context or Full(),
                rewards=rewards,
            )
        )


def thoughts(trajectory):
    words = [len(turn.think.split()) for turn in trajectory.turns]
    return {"words": words, "long": sum(words)}


@pytest.mark.parametrize("context", [Full(), SingleTurn()])
def test_parts_are_in_rows_returns_metrics_and_records(context):
    plain, found = played(Rewards(), context), played(Rewards(0.5, {"thoughts": (0.1, thoughts)}), context)
    rewards, penalties = ([getattr(turn, name) for turn in plain.turns] for name in ("reward", "penalty"))
    words, total = [1, 2, 3], 6
    expected = [0.5 * r + p + 0.1 * w for r, p, w in zip(rewards, penalties, words, strict=True)]
    expected[-1] += 0.1 * total
    assert [turn.total for turn in found.turns] == pytest.approx(expected)
    rows = rows_of(found)
    assert [value for row in rows for value in row.rewards if value] == pytest.approx(expected)
    assert found.ret == pytest.approx(sum(expected)) == found.record()["return"]
    assert found.metrics()["reward/thoughts/words"] == pytest.approx(0.6)
    assert found.metrics()["reward/thoughts/long"] == pytest.approx(0.6)
    assert found.metrics()["reward/environment"] == pytest.approx(0.5 * sum(rewards))
    record = found.record()
    assert record["turns"][-1]["rewards"].keys() == {"environment", "thoughts/words", "thoughts/long"}
    row = json.loads(json.dumps(encode(record)))
    assert decode(row, {row["preamble"]: record["preamble"]})["turns"] == record["turns"]


def test_without_rewards_everything_stays_as_it_was():
    found = played(Rewards())
    assert [turn.total for turn in found.turns] == [turn.reward + turn.penalty for turn in found.turns]
    assert not any(turn.rewards for turn in found.turns) and not any(
        key.startswith("reward/") for key in found.metrics()
    )


numbers = st.floats(-1e6, 1e6)


@given(weight=numbers, environment=numbers, raw=st.lists(numbers, min_size=1, max_size=4), end=numbers)
def test_parts_add_up_to_the_return(weight, environment, raw, end):
    turns = [Turn("", [], [1], reward=one, penalty=-0.1) for one in raw]
    trajectory = Trajectory("A", 1, 0, turns=turns)
    Rewards(environment, {"mine": (weight, lambda one: {"each": raw, "end": end})}).give(trajectory)
    parts = [environment * sum(raw), weight * sum(raw), weight * end]
    assert math.isclose(trajectory.ret, sum(parts) - 0.1 * len(raw), rel_tol=1e-9, abs_tol=1e-3)
    assert sum(sum(row.rewards) for row in rows_of(trajectory)) == pytest.approx(trajectory.ret, abs=1e-3)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (1.0, "returned 1.0, and not a mapping of names to numbers"),
        ({"a": [1.0]}, r"the reward mine returned a \[1.0\], which are 1 numbers for 3 turns"),
        ({"a": "much"}, "which is no number"),
        ({"a": float("nan")}, "which is not finite"),
        (ZeroDivisionError("oh"), "ZeroDivisionError: oh"),
    ],
)
def test_a_reward_that_fails_excludes_the_episode(returned, words):
    def mine(trajectory):
        if isinstance(returned, Exception):
            raise returned
        return returned

    found = played(Rewards(1.0, {"mine": (1.0, mine)}))
    assert found.stop_reason is StopReason.ENV_ERROR and found.excluded
    assert re.search(f"reward: .*{words}", found.error)


def test_a_full_context_is_charged_with_the_rewards():
    rewards = Rewards(0.0, {"mine": (1.0, lambda one: {"bad": [-5.0] * len(one.turns)})})
    found = played(rewards, limits=Limits(response_length=200, context_length=450))
    assert found.stop_reason is StopReason.CONTEXT_FULL and (turns := len(found.turns)) < 3
    assert found.ret < -5.0 * 3 + 0.1 < -5.0 * turns


# -- the recipe -------------------------------------------------------------------------------------------------------


@pytest.fixture
def brief(monkeypatch):
    monkeypatch.setattr(REWARDS, "_things", dict(REWARDS))

    @reward("brief")
    def brief(trajectory, *, words: int = 50):
        return {"long": -float(words)}

    return brief


def blocks(**keys) -> RewardBlocks:
    return parse(RewardBlocks, keys, "ragen.rewards")


def test_a_recipe_chooses_rewards_and_their_options(brief):
    assert not blocks().chosen and not blocks(brief=None).chosen
    chosen = blocks(environment=0, brief={"weight": 2, "words": 3}).chosen
    weight, function = chosen.functions["brief"]
    assert (chosen.environment, weight, function(None)) == (0.0, 2.0, {"long": -3.0})
    split = {"envs": [{"id": "Bandit-v0", "groups": 1}], "seed": 0}
    block = {"train": split, "val": {**split, "seed": 9}, "run": {"dir": "x"}, "rewards": {"brief": {}}}
    assert RagenConfig.from_omegaconf(block).rewards.chosen.functions.keys() == {"brief"}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"brif": {}}, r"A key of ragen\.rewards is 'brif', which is no reward: did you mean brief\?"),
        ({"enviroment": 0.5}, r"did you mean environment\?"),
        ({"brief": 2}, r"ragen\.rewards\.brief is 2 but has to be a block of options"),
        (
            {"brief": {"word": 2}},
            r"ragen\.rewards\.brief\.word is 2 but the reward brief does not read it: did you mean words",
        ),
        ({"brief": {"words": "x"}}, r"ragen\.rewards\.brief\.words is 'x' but has to be a whole number"),
        ({"brief": {"weight": "x"}}, r"ragen\.rewards\.brief\.weight is 'x' but has to be a finite number"),
        ({"environment": 0}, r"ragen\.rewards\.environment is 0 and ragen\.rewards names no other reward"),
        ({"environment": float("inf")}, r"ragen\.rewards\.environment is inf but has to be a finite number"),
    ],
)
def test_a_mistake_in_the_block_is_refused(brief, keys, words):
    with pytest.raises(RecipeError, match=words):
        blocks(**keys)


def test_names_that_mean_something_else_are_refused():
    with pytest.raises(RecipeError, match="cannot be called 'environment'"):
        reward("environment")
    with pytest.raises(RecipeError, match="has an option weight, which every reward has"):
        reward("heavy")(lambda trajectory, *, weight=1.0: {})
