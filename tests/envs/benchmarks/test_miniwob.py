"""MiniWoB++: rules solve pages with the official score; pages are the same for the same seed."""

from __future__ import annotations

import copy
import json
import pickle
import shutil

import numpy as np
import pytest
from benchmark_packages import installed
from ragen_envs.benchmarks.miniwob import browser
from ragen_envs.benchmarks.miniwob.solutions import SOLUTIONS

from ragen_verl import make
from ragen_verl.env.tools import called, said
from ragen_verl.errors import BadEnvKwargs, MissingExtra

CHROMIUM = pytest.mark.skipif(
    not any(map(shutil.which, browser._NAMES)), reason="there is no Chromium: run apt-get install chromium"
)
pytestmark = [installed("miniwob"), CHROMIUM]


@pytest.fixture
def env():
    made = make("MiniWoB-v0", episodes=2)
    yield made
    made.close()


def test_rules_solve_their_pages_with_the_official_score(env) -> None:
    assert len(SOLUTIONS) >= 20
    for task in range(env.tasks):
        env.reset(seed=0, options={"task": task})
        for action in env.oracle():
            step = env.step(action)
        assert step.terminated and step.reward == 1 and step.info["success"], env.task_key(task)


def test_the_score_of_random_play_is_the_one_of_the_page(env) -> None:
    rng, rewards = np.random.default_rng(0), []
    for _ in range(1000 // env.max_actions):
        env.reset(seed=int(rng.integers(env.tasks)))
        for _ in range(env.max_actions):
            numbers = [one["ref"] for one in env._page.run("() => ragen.look()")["elements"]] or [1]
            ref = int(rng.choice([*numbers, 99]))
            action = [called("click", ref=ref), called("write", ref=ref, text="a'b\"</script>"), env.random_action(rng)]
            if "message" in json.loads(chosen := str(rng.choice(action))):
                continue
            step = env.step(chosen)
            score = env._page.run("() => ({raw: WOB_RAW_REWARD_GLOBAL, done: WOB_DONE_GLOBAL})")
            assert step.terminated == score["done"] and step.reward == score["raw"] * score["done"]
            if step.terminated:
                rewards.append(step.reward)
                break
    assert rewards and min(rewards) >= -1 and max(rewards) <= 1 and len(set(rewards)) > 1


def test_a_seed_gives_the_same_page_and_another_one_another(env) -> None:
    first = [env.reset(seed=task)[0] for task in range(0, env.tasks, 2)]
    other = make("MiniWoB-v0", episodes=2)
    assert [other.reset(seed=task)[0] for task in range(0, env.tasks, 2)] == first
    different = [env.reset(seed=task + 1)[0] for task in range(0, env.tasks, 2)]
    assert sum(one != two for one, two in zip(first, different, strict=True)) > len(first) / 2
    assert make("MiniWoB-v0", episodes=2, first=2).task_key(0) != env.task_key(0) == "choose-list/0"
    other.close()


def test_a_copy_replays_in_a_page_of_its_own(env) -> None:
    env.reset(seed=env.pages.index("enter-password") * 2)
    env.step(env.oracle()[0])
    for other in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        assert other.oracle() == env.oracle() != []
        for action in other.oracle():
            step = other.step(action)
        assert step.reward == 1
        other.close()
    assert env.step(env.oracle()[0]).reward == 0


def test_wrong_calls_are_answered_and_words_end_the_episode(env) -> None:
    env.reset(seed=env.pages.index("enter-text") * 2)
    assert "is not there" in env.step(called("click", ref=99)).observation
    assert "was not called" in env.step(called("click", ref="x")).observation
    assert "nothing to choose" in env.step(called("choose", ref=1, option="a")).observation
    text = "'); core.endEpisode(1); ('"
    assert json.dumps(text) in env.step(called("write", ref=1, text=text)).observation
    step = env.step(said("Done."))
    assert step.terminated and step.reward == 0 and not step.info["success"]


def test_the_clock_runs_with_decay_alone() -> None:
    env = make("MiniWoB-v0", page="click-test", decay=True)
    env.reset(seed=1)
    assert 0 < env.step(env.oracle()[0]).reward < 1
    assert env._page.run("() => core.EPISODE_MAX_TIME") == 10_000
    env.close()
    with pytest.raises(BadEnvKwargs, match="click-test"):
        make("MiniWoB-v0", page="click-tset")


def test_without_chromium_it_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(browser, "_browser", None)
    monkeypatch.setattr(browser, "_NAMES", ("no-such-browser",))
    with pytest.raises(MissingExtra, match="apt-get install chromium"):
        make("MiniWoB-v0").reset(seed=0)
