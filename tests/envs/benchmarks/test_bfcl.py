"""BFCL multi-turn: every official solution succeeds, and the score is that of the official checker."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from benchmark_packages import installed

from ragen_verl import make
from ragen_verl.env.tools import called, said
from ragen_verl.errors import BadEnvKwargs

pytestmark = installed("bfcl_eval")
CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
Trace = list[list[tuple[str, dict]]]
"""The calls of each turn."""


def official_trace(env) -> Trace:
    trace: Trace = [[]]
    for action in map(json.loads, env.oracle()):
        if "message" in action:
            trace.append([])
        else:
            trace[-1].append((action["name"], action["arguments"]))
    return trace[:-1]


def mutated(trace: Trace, env, rng: np.random.Generator) -> Trace:
    """A copy of a trace with one to three changes."""
    trace = [list(turn) for turn in trace]
    every = [call for turn in trace for call in turn]
    for _ in range(int(rng.integers(1, 4))):
        turn = trace[int(rng.integers(len(trace)))]
        place = int(rng.integers(len(turn) + 1))
        change = int(rng.integers(7))
        if change == 0 and turn:
            turn.pop(place - 1)
        elif change == 1:
            turn.insert(place, every[int(rng.integers(len(every)))])
        elif change == 2 and turn:
            rng.shuffle(turn)
        elif change == 3 and turn and turn[place - 1][1]:
            name, given = turn[place - 1]
            key = list(given)[int(rng.integers(len(given)))]
            value = [given[key], "x", 3, None, [given[key]], "file.txt", 1.5, True][int(rng.integers(8))]
            turn[place - 1] = (name, {**given, key: value})
        elif change == 4 and turn:
            name, given = turn[place - 1]
            turn[place - 1] = (name, dict(list(given.items())[:-1]))
        elif change == 5:
            turn.insert(place, random_call(env, rng))
        elif change == 6 and turn:
            turn.clear()
    return trace


def random_call(env, rng: np.random.Generator) -> tuple[str, dict]:
    while True:
        action = json.loads(env.random_action(rng))
        if "name" in action:
            return action["name"], action["arguments"]


def played(env, trace: Trace) -> bool:
    """The success of an episode that ends each turn after its calls."""
    env.reset(seed=env.seed)
    for turn in trace:
        for name, given in turn:
            step = env.step(called(name, **given))
            assert step.reward == 0 or step.terminated
        step = env.step(said("Done."))
    assert step.terminated and step.reward == float(step.info["success"])
    return step.info["success"]


def by_the_official_checker(env, trace: Trace, name: str) -> bool:
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    entry = env._entry
    written = [
        [[f"{call}({', '.join(f'{key}={value!r}' for key, value in given.items())})"] for call, given in turn]
        for turn in trace
    ]
    return multi_turn_checker(written, entry["gold"], entry, f"multi_turn_{env.category}", name)["valid"]


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_official_solution_succeeds(category) -> None:
    env = make("BFCL-v0", category=category)
    solved = []
    for task in range(env.tasks):
        env.reset(seed=0, options={"task": task})
        for action in env.oracle():
            step = env.step(action)
        solved.append(step.terminated and step.info["success"] and step.reward == 1)
    assert (len(solved), sum(solved)) == (200, 200)
    assert len({env.task_key(task) for task in range(200)}) == 200


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_score_of_changed_traces_is_the_official_one(category) -> None:
    env, rng, scores = make("BFCL-v0", category=category), np.random.default_rng(0), []
    for number in range(250):
        env.reset(seed=int(rng.integers(env.tasks)))
        trace = mutated(official_trace(env), env, rng)
        score = played(env, trace)
        assert score == by_the_official_checker(env, trace, f"m{category}{number}"), (env._entry["id"], trace)
        scores.append(score)
    assert 0.05 < np.mean(scores) < 0.95


def test_functions_are_added_in_the_middle_and_said() -> None:
    env = make("BFCL-v0", category="miss_func")
    env.reset(seed=0)
    names = [one["function"]["name"] for one in env.tools]
    assert "sort" not in names and "grep" in names
    for action in env.oracle():
        step = env.step(action)
        if "are available from now on" in step.observation:
            break
    assert '"sort"' in step.observation and "sort" in [one["function"]["name"] for one in env.tools]


def test_wrong_calls_are_answered_in_words() -> None:
    env = make("BFCL-v0")
    env.reset(seed=0)
    assert "no tool 'nope'" in env.step(called("nope")).observation
    assert "Error during execution" in env.step(called("cd", nothing=1)).observation
    assert "Error during execution" in env.step(called("cd")).observation
    step = env.step("__import__('os').system('true')")
    assert not step.info["action_is_valid"] and not step.terminated
    for _ in range(40):
        step = env.step(called("ls"))
    assert step.terminated and not step.info["success"] and env.oracle() == []
    with pytest.raises(BadEnvKwargs):
        make("BFCL-v0", category="multi")


def test_a_copy_goes_on_where_the_episode_was() -> None:
    env = make("BFCL-v0")
    env.reset(seed=3)
    first, *rest = env.oracle()
    env.step(first)
    other = pickle.loads(pickle.dumps(env))
    assert other.oracle() == env.oracle() == rest
    assert [other.step(one)[:3] for one in rest] == [env.step(one)[:3] for one in rest]


def test_schemas_have_the_types_of_json() -> None:
    env = make("BFCL-v0")
    for seed in range(30):
        env.reset(seed=seed)
        assert not {'"dict"', '"float"', '"tuple"'} & set(json.dumps(env.tools).replace(",", " ").split())
