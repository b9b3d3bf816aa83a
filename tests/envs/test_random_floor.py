"""The random player of every environment that has its own draws the same, here, in a worker process and on a server."""

from __future__ import annotations

from functools import partial

import pytest
from env_servers import serving
from ragen_lab.checker import Profile, Subject
from ragen_lab.checker.calls import Calls
from ragen_lab.checker.costs import measure
from ragen_lab.checker.record import chooser
from ragen_lab.checker.scores import play_all
from test_registry_wide import IDS

from ragen_verl import make
from ragen_verl.env import registry
from ragen_verl.env.hosting.process import EnvProcesses

HAVE_IT = [id for id in IDS if hasattr(registry.builder(id), "random_action")]
PROFILE = Profile(episodes=3, steps=10, budget=30, limit=60)


@pytest.fixture(scope="module")
def server():
    with serving() as one:
        yield one


@pytest.fixture(scope="module")
def processes():
    with EnvProcesses(1) as pool:
        yield pool


@pytest.fixture
def places(server, processes):
    """Builders of an environment: here, in a worker process, on a server."""

    def of(id, **kwargs):
        builders = make, processes.worker().make, lambda id, **kwargs: make(f"{server.url}/{id}", **kwargs)
        return [partial(build, id, **kwargs) for build in builders]

    return of


def episode(build, seed):
    """What a random player does and sees, and what its generator draws next."""
    env, rng, seen = build(), chooser(seed), []
    env.reset(seed=seed)
    for _ in range(10):
        action = env.random_action(rng)
        step = env.step(action)
        seen.append((action, step.observation, step.reward))
        if step.terminated or step.truncated:
            break
    env.close()
    return seen, rng.random()


def test_there_are_some():
    assert {"WebShop-v0", "Countdown-v0", "SearchQA-v0"} <= set(HAVE_IT)


@pytest.mark.parametrize("id", HAVE_IT)
def test_the_same_actions_are_drawn_everywhere(places, id):
    for seed in range(2):
        here, apart, far = (episode(build, seed) for build in places(id))
        assert here == apart == far


@pytest.mark.parametrize("id", [id for id in HAVE_IT if id != "TextWorld-v0"])  # slow: it compiles a game for a seed
def test_floor_and_sizes_are_the_same_everywhere(places, id):
    def measured(build):
        calls = Calls(60)
        scores = play_all(Subject(id, build), PROFILE, calls)["random"]
        tokens = measure(Subject(id, build), PROFILE, calls)["tokens"]
        calls.close_all()
        return scores, tokens

    here, apart, far = map(measured, places(id))
    assert here == apart == far


def test_one_that_has_none_is_played_with_words_everywhere(places):
    assert [getattr(build(), "random_action", None) for build in places("Sokoban-v0")[1:]] == [None, None]
