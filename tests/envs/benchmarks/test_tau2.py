"""tau2 telecom: every official solution succeeds, and the score is that of the official evaluators."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from benchmark_packages import installed

from ragen_verl import make
from ragen_verl.env.tools import called, said
from ragen_verl.errors import BadEnvKwargs
from ragen_verl.validation.tasks import near_copies

pytestmark = installed("tau2", "toml", "docstring_parser", "deepdiff", "addict", "loguru")


def play(env, actions: list[str]) -> list[str]:
    """Play actions to the end; return the results."""
    results = []
    for action in actions:
        step = env.step(action)
        results.append(step.observation)
        assert step.reward == 0 or step.terminated
    return results


def official(env, actions: list[str], results: list[str]) -> float:
    """The reward of tau2's own evaluators, as its `evaluate_simulation` combines them."""
    from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage
    from tau2.data_model.tasks import RewardType
    from tau2.domains.telecom.environment import get_environment
    from tau2.evaluator.evaluator_action import ActionEvaluator
    from tau2.evaluator.evaluator_env import EnvironmentEvaluator

    task, messages = env._case, []
    for number, (action, result) in enumerate(zip(actions, results, strict=True)):
        call = ToolCall(id=str(number), requestor="assistant", **json.loads(action))
        messages.append(AssistantMessage(role="assistant", content=None, tool_calls=[call]))
        messages.append(ToolMessage(id=str(number), content=result, requestor="assistant", role="tool"))
    try:
        reward = EnvironmentEvaluator.calculate_reward(get_environment, task, messages, solo_mode=True).reward
    except AttributeError:  # its assertions raise where a call has put a text in the place of settings
        return 0.0
    if RewardType.ACTION in task.evaluation_criteria.reward_basis:
        reward *= ActionEvaluator.calculate_reward(task, messages).reward
    return reward


def mutated(plan: list[str], env, rng: np.random.Generator) -> list[str]:
    """Calls without `done`, with one to three changes."""
    plan = plan[:-1]
    for _ in range(int(rng.integers(1, 4))):
        place, change = int(rng.integers(len(plan) + 1)), int(rng.integers(5))
        if change == 0 and plan:
            plan.pop(place - 1)
        elif change == 1 and plan:
            plan.insert(place, plan[int(rng.integers(len(plan)))])
        elif change == 2:
            rng.shuffle(plan)
        elif change == 3:
            call = json.loads(env.random_action(rng))
            if call.get("name") not in (None, "done"):
                plan.insert(place, called(call["name"], **call["arguments"]))
        elif plan:
            call = json.loads(plan[place - 1])
            plan[place - 1] = called(call["name"], **{key: "x" for key in call["arguments"]})
    return plan


def test_every_official_solution_succeeds() -> None:
    env = make("Tau2-v0")
    solved = []
    for task in range(env.tasks):
        env.reset(seed=0, options={"task": task})
        play(env, env.oracle()[:-1])
        step = env.step(env.oracle()[0])
        solved.append(step.terminated and step.reward == 1 and step.info["success"])
    assert (len(solved), sum(solved)) == (114, 114)


def test_the_score_of_changed_traces_is_the_official_one() -> None:
    env, rng, rewards = make("Tau2-v0", split="full"), np.random.default_rng(0), []
    with_actions = [i for i in range(env.tasks) if len(env._chosen()[i].evaluation_criteria.reward_basis) > 1]
    for number in range(1000):
        task = int(rng.choice(with_actions)) if number % 10 == 0 else int(rng.integers(env.tasks))
        env.reset(seed=0, options={"task": task})
        actions = mutated(env.oracle(), env, rng)
        results = play(env, actions)
        # the reward before `done` is what the official evaluators give to the same calls
        wanted = official(env, actions, results)
        assert env.step(called("done")).reward == wanted, (env.task_key(task), actions)
        rewards.append(wanted)
    assert 0.05 < np.mean(rewards) < 0.95


def test_splits_are_official_and_copies_can_be_left_out() -> None:
    sizes = {split: make("Tau2-v0", split=split).tasks for split in ("base", "train", "test", "small", "full")}
    assert sizes == {"base": 114, "train": 74, "test": 40, "small": 20, "full": 2285}

    def keys(**kwargs) -> dict:
        env = make("Tau2-v0", **kwargs)
        return {env.task_key(task): (env, task) for task in range(env.tasks)}

    test, full, clean = keys(split="test"), keys(split="full"), keys(split="full", without="test")
    assert not keys(split="train").keys() & test.keys() and test.keys() < full.keys()
    copies = set(near_copies(full, test))
    assert clean.keys() == full.keys() - copies and len(copies - test.keys()) == 21
    for bad in ({"split": "all"}, {"without": "all"}, {"without": "full"}, {"domain": "retail"}):
        with pytest.raises(BadEnvKwargs, match="Tau2"):
            make("Tau2-v0", **bad)


def test_words_and_wrong_calls_change_nothing() -> None:
    env = make("Tau2-v0")
    env.reset(seed=3)
    plan = env.oracle()
    for action in (said("Hello?"), called("nope"), called("reboot_device", x=1), called("get_details_by_id"), "junk"):
        step = env.step(action)
        assert not step.terminated and step.reward == 0
    assert env.oracle() == [] and "Nobody reads this" in env.step(said("?")).observation
    play(env, plan)
    assert env._solved
    assert env.step(plan[0])[1:3] == (0.0, True)


def test_a_copy_goes_on_where_the_episode_was() -> None:
    env = make("Tau2-v0")
    env.reset(seed=5)
    env.step(env.oracle()[0])
    other = pickle.loads(pickle.dumps(env))
    assert play(other, other.oracle()) == play(env, env.oracle())
    assert len(env.policy) > 20_000 and "done" in [one["function"]["name"] for one in env.tools]
