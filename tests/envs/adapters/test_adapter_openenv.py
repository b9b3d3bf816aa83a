"""The OpenEnv adapter against real servers."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
from gymnasium.error import ResetNeeded
from openenv_server import Echo, Guess, Pair, Secret, Word, served
from ragen_lab.checker.texts import HOSTILE

from ragen_verl import make
from ragen_verl.errors import BadEnvKwargs, RecipeError

DIGITS = [str(number) for number in range(10)]


@pytest.fixture(scope="module")
def guess():
    with served(Secret, Guess) as url:
        yield f"openenv:{url}"


def test_an_episode_with_names(guess):
    env = make(guess, action_names=DIGITS, what="the digit")
    assert env.reset(seed=1)[0] == "hint: guess the digit\ntries: 0"
    steps = [env.step(number) for number in ("0", "1", "2", "3")]
    assert [step.reward for step in steps] == [0, 0, 1, 0]  # random.Random(1).randrange(10) is 2
    assert steps[2].terminated and steps[2].info["success"] and not steps[3].info["action_is_effective"]
    env.close()


def test_a_refused_action_does_nothing_a_failure_cuts_off(guess):
    env = make(guess)
    before = env.reset(seed=1)[0]
    for text in HOSTILE:
        step = env.step(text)
        if not step.info["action_is_valid"]:
            assert (step.reward, step.observation) == (0, env.render())
        if step.terminated or step.truncated:
            assert env.reset(seed=1)[0] == before
    env.reset(seed=1)
    assert env.step("13").truncated
    with pytest.raises(ResetNeeded):
        copy.deepcopy(make(guess)).step("1")
    env.close()


def test_a_seed_is_an_episode_beside_others(guess):
    def play(seed: int) -> list:
        env = make(guess, action_names=DIGITS)
        seen = [env.reset(seed=seed)[0], *(tuple(env.step(number)[:4]) for number in ("4", "7", "1"))]
        env.close()
        return seen

    alone = {seed: play(seed) for seed in range(3)}
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(play, list(range(3)) * 10)) == [alone[seed] for seed in list(range(3)) * 10]


def test_text_and_actions_of_several_fields():
    with served(Echo, Word) as url:
        env = make(f"openenv:{url}", observation_field="hint")
        env.reset(seed=0)
        assert env.step("hello").observation == "hello"
        env.close()
    with served(Secret, Pair) as url:
        env = make(f"openenv:{url}")
        env.reset(seed=1)
        assert not env.step("1 and 1").info["action_is_valid"]
        assert env.step('{"left": 1, "right": 1}').reward == 1
        env.close()
        with pytest.raises(BadEnvKwargs, match="left, right"):
            make(f"openenv:{url}", action_field="middle")


def test_no_server_is_said_at_once():
    with pytest.raises(RecipeError, match="no OpenEnv server answers at"):
        make("openenv:http://127.0.0.1:1")
    with pytest.raises(RecipeError, match="write openenv:http://host:port"):
        make("openenv:localhost")
