"""What every environment of ours keeps, as one function: the rules of `ragen_lab.checker` and a few more."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from hypothesis import strategies as st
from ragen_lab.checker import QUICK, Subject, check
from ragen_lab.checker.texts import HOSTILE

from ragen_verl import Env, Step, make

SECTIONS = "Description|Action Space|Observation Space|Starting State|Rewards|Episode End|Arguments|Version History"

TEXTS = st.sampled_from(HOSTILE) | st.text(max_size=40) | st.text("0123456789+-*/()., $%\\{}abrcx=", max_size=40)


def check_contract(id: str, *, one_level: bool = False, **kwargs) -> None:
    """Fail if `make(id, **kwargs)` breaks a rule of the checker, or what our own environments keep beyond them.

    `one_level`: the arguments ask for one level, which the checker has to note.
    """
    report = check(Subject.of(id, **kwargs), QUICK, skip=["processes"])
    assert report.ok and ["begin the same level" in note for note in report.notes] == [True] * one_level, report
    env = make(id, **kwargs)
    assert all(f"## {section}\n" in type(env).__doc__ for section in SECTIONS.split("|"))
    with pytest.raises(ResetNeeded):
        make(id, **kwargs).step("1")
    for seed in range(5):
        check_oracle_and_end(env, seed)
        assert len(env.instruction) < 700
    for text in HOSTILE:
        env.reset(seed=1)
        check_step(env, text)
    for junk in (None, 3, b"1", ["1"], np.int64(1)):
        assert not env.step(junk).info["action_is_valid"]


def check_adapter(env: Env, action: str) -> None:
    """Fail if a fresh environment of another package breaks what every adapter keeps; `action` is one of its own."""
    assert 1 <= env.max_actions <= 200
    assert all(f"## {section}\n" in type(env).__doc__ for section in SECTIONS.split("|"))
    with pytest.raises(ResetNeeded):
        env.step(action)
    first = env.reset(seed=1)[0]
    assert first and first == env.render() and first in env.observation_space and env.instruction
    for text in HOSTILE:
        env.reset(seed=1)
        step = env.step(text)
        assert isinstance(step, Step) and math.isfinite(step.reward) and not (step.terminated and step.truncated)
        assert step.observation == env.render() and step.observation in env.observation_space
        if not step.info["action_is_valid"]:
            assert step.reward == 0 and not step.info["action_is_effective"] and not step.info["success"]
    env.reset(seed=1)
    for junk in (None, 3, b"1", ["1"]):
        step = env.step(junk)
        assert not step.info["action_is_valid"] and not step.terminated and step.observation == first


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
