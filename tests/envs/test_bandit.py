"""Bandit: arms, pulls, rewards."""

from __future__ import annotations

import pytest
from nano_model.careless import careless_plan
from ragen_envs.bandit import PAIRS

from ragen_verl import make
from ragen_verl.errors import RecipeError


def pull(env, arm, seed=0, rollout_index=0):
    env.reset(seed=seed, options={"rollout_index": rollout_index})
    return env.step(arm)


def test_one_pull_ends_the_episode():
    env = make("Bandit-v0")
    step = pull(env, "phoenix")
    assert step[:4] == ("Phoenix: 0.15 points", 0.15, True, False)
    assert env.max_actions == 1


@pytest.mark.parametrize("low_reward", [0.15, 0.1])
def test_the_low_arm_always_pays_the_same(low_reward):
    env = make("Bandit-v0", low_reward=low_reward)
    assert {pull(env, "Phoenix", seed, rollout_index).reward for seed in range(20) for rollout_index in range(5)} == {
        low_reward
    }


def test_the_high_arm_pays_in_a_quarter_of_the_pulls():
    env = make("Bandit-v0")
    paid = [pull(env, "Dragon", 10_000, rollout_index).reward for rollout_index in range(4000)]
    assert set(paid) == {0.0, 1.0}
    assert 0.23 < sum(paid) / 4000 < 0.27  # 3 standard errors are 0.02
    paid = [pull(env, "Dragon", seed).reward for seed in range(4000)]
    assert 0.23 < sum(paid) / 4000 < 0.27


def test_success_is_the_high_arm_whatever_it_paid():
    env = make("Bandit-v0")
    outcomes = {(s.reward, s.info["success"]) for s in (pull(env, "Dragon", k) for k in range(30))}
    assert outcomes == {(0.0, True), (1.0, True)}
    assert not pull(env, "Phoenix").info["success"]


def test_the_order_of_names_is_fair():
    env = make("Bandit-v0")
    first = []
    for seed in range(1000):
        observation, _ = env.reset(seed=seed)
        assert observation.index(env.actions[0]) < observation.index(env.actions[1])
        first.append(env.actions[0])
    assert env.instruction == "" and "<answer>" in observation
    assert 450 < first.count("Phoenix") < 550


@pytest.mark.parametrize(
    ("id", "low", "high"),
    [
        ("Bandit-v0", "Phoenix", "Dragon"),
        ("BanditTest-v0", "Trader", "Librarian"),
        ("BanditGen-v0", "Engineer", "Teacher"),
        ("BanditGenTest-v0", "Trader", "Librarian"),
        ("BanditRev-v0", "Teacher", "Engineer"),
        ("BanditRevTest-v0", "Librarian", "Trader"),
    ],
)
def test_variants(id, low, high):
    env = make(id)
    env.reset(seed=0)
    assert (env.low, env.high) == (low, high)
    assert env.oracle() == [high] and careless_plan(env) == [low]


@pytest.mark.parametrize(("split", "number"), [("train", 12), ("test", 8)])
def test_split_draws_all_pairs_and_the_same_one_for_the_group(split, number):
    env = make("Bandit-v0", split=split)
    seen = set()
    for seed in range(200):
        observations = {env.reset(seed=seed, options={"rollout_index": k})[0] for k in range(4)}
        assert len(observations) == 1
        assert set(env.actions) == {env.low, env.high} == set(env.action_space.names)
        seen.add((env.low, env.high))
    assert seen == set(PAIRS[split]) and len(seen) == number


def test_splits_share_no_name():
    names = [name for pairs in PAIRS.values() for pair in pairs for name in pair]
    assert len(set(names)) == len(names) == 40


@pytest.mark.parametrize(
    "kwargs",
    [{"split": "val"}, {"split": "train", "low": "A"}, {"low": "A", "high": "a"}, {"low": " A"}, {"low_reward": "x"}],
)
def test_bad_arguments(kwargs):
    with pytest.raises(RecipeError, match="Bandit"):
        make("Bandit-v0", **kwargs)
