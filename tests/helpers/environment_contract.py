"""What every environment keeps, as one function, and texts that a model might write to break one."""

from __future__ import annotations

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import strategies as st
from random_play import random_plan

from ragen_verl import Step, make

SECTIONS = "Description|Action Space|Observation Space|Starting State|Rewards|Episode End|Arguments|Version History"

HOSTILE = [
    "",
    " \t\n",
    "\x00\x1b[2J\r",
    "__import__('os').system('touch /tmp/pwned')",
    "().__class__.__bases__[0].__subclasses__()",
    "9**9**9",
    "1e999999999",
    "(" * 100_000 + "1" + ")" * 100_000,
    "-" * 100_000 + "1",
    "9" * 1_000_000,
    "1/" * 500_000,
    "1," * 500_000,
    ",000" * 2_400 + "x",
    "\\boxed{" * 1_400,
    "####" * 2_000,
    "a" * 1_000_000,
    " " * 1_000_000 + "x",
    "１＋２",
    "Ｕｐ",
    "<answer><answer>1</answer></answer>",
    "row 1 column 1 is ٣",
    "\ud800",
    "nan",
    "inf",
    "1/0",
    "0/0",
    "\\frac{1}{0}",
    "None",
]
TEXTS = st.sampled_from(HOSTILE) | st.text(max_size=40) | st.text("0123456789+-*/()., $%\\{}abrcx=", max_size=40)


def check_contract(id: str, **kwargs) -> None:
    """Fail if `make(id, **kwargs)` breaks a rule of `ragen_verl.env.core`."""
    env = make(id, **kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(env)
    assert all(f"## {section}\n" in type(env).__doc__ for section in SECTIONS.split("|"))
    with pytest.raises(ResetNeeded):
        make(id, **kwargs).step("1")
    for seed in range(5):
        check_seeds(id, kwargs, seed)
        check_copies(env, seed)
        check_oracle_and_end(env, seed)
    for text in HOSTILE:
        env.reset(seed=1)
        check_step(env, text)
    for junk in (None, 3, b"1", ["1"], np.int64(1)):
        assert not env.step(junk).info["action_is_valid"]


def check_step(env, action: str) -> Step:
    """Take one step and check it."""
    before = env.render()
    step = env.step(action)
    assert isinstance(step, Step) and step.observation == env.render() and step.observation in env.observation_space
    assert math.isfinite(step.reward) and not (step.terminated and step.truncated)
    assert {"success", "action_is_valid", "action_is_effective"} <= set(step.info)
    if not step.info["action_is_valid"]:
        assert (step.observation, step.reward) == (before, 0.0) and not step.info["action_is_effective"]
    return step


def check_seeds(id: str, kwargs: dict, seed: int) -> None:
    """One seed is one episode in any instance; members begin alike; numpy's global generator is not touched."""
    before = np.random.get_state()[1].tolist()
    played = []
    for _ in range(2):
        env = make(id, **kwargs)
        seen = [env.reset(seed=seed, options={"rollout_index": 2})[0]]
        for action in random_plan(env, np.random.default_rng(seed), 5):
            seen.append(tuple(env.step(action)[:4]))
        played.append(seen)
    assert played[0] == played[1]
    assert np.random.get_state()[1].tolist() == before
    assert len({env.reset(seed=seed, options={"rollout_index": rollout_index})[0] for rollout_index in range(8)}) == 1
    assert len(env.instruction) < 700


def check_copies(env, seed: int) -> None:
    """A copy goes on like the original."""
    env.reset(seed=seed, options={"rollout_index": 3})
    env.step(random_plan(env, np.random.default_rng(seed), 1)[0])
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        original = copy.deepcopy(env)
        for action in random_plan(env, np.random.default_rng(seed + 1), 5):
            assert tuple(original.step(action)) == tuple(twin.step(action))
        assert original.reset() == twin.reset()


def play_oracle(env, limit: int = 5000) -> tuple[list[Step], float]:
    """Follow the environment's own plan, made anew after every action; return the steps and the sum of rewards."""
    steps: list[Step] = []
    while len(steps) < limit and (plan := env.oracle()):
        steps.append(check_step(env, plan[0]))
    return steps, sum(step.reward for step in steps)


def check_oracle_and_end(env, seed: int) -> None:
    """The plan ends the episode within its budget, and after the end nothing happens."""
    env.reset(seed=seed)
    plan = env.oracle()
    steps, _ = play_oracle(env)
    assert steps[-1].terminated and len(plan) <= len(steps) <= env.max_actions
    again = env.step(plan[-1])
    assert (again.observation, again.reward, again.terminated) == (steps[-1].observation, 0.0, True)
    assert env.oracle() == []
