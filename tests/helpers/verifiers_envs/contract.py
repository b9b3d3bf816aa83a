"""What the adapter keeps, with the real package: run by test_adapter_verifiers.py in a virtualenv that holds it."""

import asyncio
import copy
import gc
import json
import math
import pickle
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from environment_contract import TEXTS
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_lab import checker as checks
from ragen_lab.checker.texts import HOSTILE

from ragen_verl import Step, make
from ragen_verl.errors import BadEnvKwargs, RecipeError, UnknownEnv

IDS = ["verifiers:vf-sums", "verifiers:vf-guess"]
each = pytest.mark.parametrize("id", IDS)


def play(id: str, seed: int, rollout_index: int = 0, texts: tuple[str, ...] = ("x", "", "5", "y")) -> list:
    """What an episode shows."""
    env = make(id)
    seen: list = [env.reset(seed=seed, options={"rollout_index": rollout_index})[0], env.instruction, env.max_actions]
    seen += [list(env.step(text)) for text in texts]
    env.close()
    return seen


def rollouts() -> int:
    """How many are alive."""
    return sum(one.name == "ragen-rollout" for one in threading.enumerate())


def left() -> int:
    """How many are alive after what has ended had a moment to go."""
    gc.collect()
    end = time.monotonic() + 30
    while (alive := rollouts()) and time.monotonic() < end:
        time.sleep(0.1)
    return alive


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert left() == 0


@each
def test_what_every_environment_keeps(id):
    env = make(id)
    with pytest.raises(ResetNeeded):
        env.step("x")
    first = env.reset(seed=1)[0]
    assert first and first == env.render() and first in env.observation_space and env.instruction
    for text in HOSTILE:
        env.reset(seed=1)
        step = env.step(text)
        assert isinstance(step, Step) and math.isfinite(step.reward) and step.observation == env.render()
        assert step.observation in env.observation_space and not (step.terminated and step.truncated)
    env.reset(seed=1)
    for junk in (None, 3, b"1", ["1"]):
        assert not env.step(junk).info["action_is_valid"]
    env.close()


@settings(max_examples=30, deadline=None)
@given(id=st.sampled_from(IDS), texts=st.lists(TEXTS, max_size=4))
def test_no_text_makes_a_step_raise(id, texts):
    env = make(id)
    env.reset(seed=2)
    for text in texts:
        assert math.isfinite(env.step(text).reward)
    env.close()


@each
def test_the_checker_finds_nothing_broken(id):
    report = checks.check(checks.Subject.of(id), replace(checks.QUICK, limit=60))
    assert report.ok, str(report)


@each
def test_a_seed_is_an_episode_also_in_another_process(id):
    before = random.getstate(), np.random.get_state()[1].tolist()
    alone = {seed: play(id, seed) for seed in range(3)}
    assert len({str(seen) for seen in alone.values()}) == 3
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(lambda seed: play(id, seed), list(range(3)) * 8)) == [alone[s] for s in range(3)] * 8
    code = f"import json; from contract import *; print(json.dumps(play({id!r}, 2)))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == json.loads(json.dumps(alone[2]))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_members_start_alike_and_have_their_own_luck():
    seen = [
        play("verifiers:vf-guess", seed=3, rollout_index=rollout_index, texts=("no",)) for rollout_index in range(6)
    ]
    assert len({str(one[:3]) for one in seen}) == 1 and len({str(one[3]) for one in seen}) > 1


def test_a_right_answer_earns_1_and_a_wrong_one_0():
    env = make("verifiers:vf-sums")
    assert env.reset(seed=13) == ("3 + 4 =", {}) and env.instruction == "Say the sum." and env.max_actions == 1
    step = env.step(" 7 ")
    assert (step.reward, step.terminated, step.info["success"]) == (1, True, True)
    assert not env.step("7").info["action_is_effective"]
    env.reset(seed=3)
    assert env.step("8")[1:3] == (0, True)
    env.reset(seed=3)
    step = env.step("nonsense")
    assert step.reward == -0.5 and not step.info["success"]


def test_several_turns_end_with_the_game_or_with_its_limit():
    env = make("verifiers:vf-guess")
    secret = env.reset(seed=1)[0].split()[-1].strip(".")
    assert env.step("no").observation.startswith("'no' is wrong.")
    assert env.step(secret)[1:4] == (1, True, False)
    env.reset(seed=1)
    assert env.max_actions == 8
    steps = [env.step("no") for _ in range(8)]
    assert [step.reward for step in steps] == [0] * 8 and steps[-1].truncated and not steps[-2].truncated
    short = make("verifiers:vf-guess", max_actions=2)
    short.reset(seed=1)
    assert [short.step("no").truncated for _ in range(2)] == [False, True]
    env.reset(seed=1)
    assert env.step("give up")[1:4] == (0, True, False)


@each
def test_a_copy_goes_on_like_the_original(id):
    env = make(id)
    env.reset(seed=4, options={"rollout_index": 1})
    if env.max_actions > 1:
        env.step("a")
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env)), env]
    assert len({str([tuple(twin.step(text)) for text in ("b", "c")]) for twin in twins}) == 1
    for twin in twins:
        twin.close()


def test_closing_or_forgetting_a_rollout_ends_it():
    envs = [make("verifiers:vf-guess") for _ in range(5)]
    for env in envs:
        env.reset(seed=0)
        env.step("x")
    assert rollouts() == 5
    for env in envs[:3]:
        env.close()
        env.close()
    assert rollouts() == 2
    del env, envs
    assert left() == 0


def test_a_caller_may_have_an_event_loop():
    async def main() -> list:
        return play("verifiers:vf-guess", 1)

    assert asyncio.run(main()) == play("verifiers:vf-guess", 1)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("error", "failed .*ZeroDivisionError: no score"),
        ("silent", "ended without a reward"),
        ("nan", "returned the reward nan"),
    ],
)
def test_an_episode_without_a_score_is_an_error(kind, message):
    env = make("verifiers:vf-odd", kind=kind)
    for _ in range(2):
        env.reset(seed=0)
        with pytest.raises(RuntimeError, match=message):
            env.step("x")
        assert not env.step("x").info["action_is_effective"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("setup", "failed .*KeyError: 'no such world'"),
        ("picture", "failed .*only text"),
        ("program", "failed .*asks for a sandbox: programs=True"),
        ("stop", "without asking the model"),
    ],
)
def test_a_rollout_that_cannot_begin_is_an_error_of_reset(kind, message):
    env = make("verifiers:vf-odd", kind=kind)
    with pytest.raises(RuntimeError, match=message):
        env.reset(seed=0)
    with pytest.raises(ResetNeeded):
        env.step("x")


def test_code_that_hangs_is_given_up():
    env = make("verifiers:vf-odd", kind="hang", timeout_s=0.5)
    env.reset(seed=0)
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="timeout_s"):
        env.step("x")
    assert time.monotonic() - start < 6


def test_programs_run_where_they_are_allowed():
    env = make("verifiers:vf-odd", kind="program", programs=True)
    env.reset(seed=0)
    assert env.step("x").reward == 1


def test_several_runs_of_the_agent_are_refused():
    env = make("verifiers:vf-sums", config={"id": "best-of-n"})
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="run several times"):
        env.step("1")


@pytest.mark.parametrize(
    ("name", "kwargs", "error", "message"),
    [
        ("textarna", {}, UnknownEnv, "did you mean textarena"),
        ("json", {}, RecipeError, "is no taskset of verifiers 0.4"),
        ("vf-sums", {"colour": 1}, BadEnvKwargs, "taskset.colour: Extra inputs are not permitted"),
        ("vf-sums", {"size": "many"}, BadEnvKwargs, "taskset.size"),
        ("vf-sums", {"size": 0}, BadEnvKwargs, "no tasks"),
        ("vf-sums", {"select": {"limit": 0}}, BadEnvKwargs, "limit"),
        ("vf-sums", {"config": {"id": "user-sim"}}, RecipeError, "agents assistant, user"),
        ("vf-sums", {"config": {"agent": {"harness": {"id": "codex"}}}}, RecipeError, "agent program 'codex'"),
        ("vf-odd", {"kind": "tools"}, RecipeError, "needs tools"),
    ],
)
def test_what_cannot_be_built_says_why(name, kwargs, error, message):
    with pytest.raises(error) as raised:
        make(f"verifiers:{name}", **kwargs)
    assert message in str(raised.value)


def test_a_container_is_refused():
    with pytest.raises(RecipeError, match="needs the container python:3"):
        make("verifiers:vf-odd", kind="image").reset(seed=0)


def test_tasks_can_be_chosen():
    env = make("verifiers:vf-sums", size=100, select={"skip": 50, "limit": 2})
    assert [env.reset(seed=seed)[0] for seed in range(3)] == ["50 + 51 =", "51 + 52 =", "50 + 51 ="]
    env.close()
