"""tau2 retail and airline: the official score, and a customer who is asked over HTTP."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from importlib import import_module

import numpy as np
import pytest
from benchmark_packages import installed
from json_server import serve
from test_tau2 import mutated, play
from typer.testing import CliRunner

from ragen_verl import make
from ragen_verl.cli import app
from ragen_verl.env.tools import said
from ragen_verl.errors import BadEnvKwargs

pytestmark = installed("tau2", "toml", "docstring_parser", "deepdiff", "addict", "loguru")
DOMAINS = {"retail": (74, 40), "airline": (30, 20)}
SEEN: list[dict] = []


def customer(path: str, headers: dict, body: dict) -> tuple[int, dict]:
    """A scripted customer: opens, asks on, and leaves where the agent has done all."""
    SEEN.append({"path": path, "headers": headers, **body})
    last = body["messages"][-1]["content"]
    text = "<think>###STOP###?</think>Please help me." if last.startswith("Hi!") else "Go on."
    text = "###STOP###" if "all that I can" in last else text
    return 200, {"choices": [{"message": {"role": "assistant", "content": text}}]}


@pytest.fixture(scope="module")
def user() -> Iterator[str]:
    with serve(customer) as url:
        yield f"api:someone@{url}/v1"


def official(env, actions: list[str], results: list[str]) -> float:
    """The reward of tau2's own evaluators for the same conversation, as its `evaluate_simulation` combines them."""
    from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage, UserMessage
    from tau2.evaluator.evaluator_communicate import CommunicateEvaluator
    from tau2.evaluator.evaluator_env import EnvironmentEvaluator

    messages = [AssistantMessage(role="assistant", content="Hi! How can I help you today?")]
    messages.append(UserMessage(role="user", content="Please help me."))
    for number, (action, result) in enumerate(zip(actions, results, strict=True)):
        found = json.loads(action)
        if "message" in found:
            messages.append(AssistantMessage(role="assistant", content=found["message"]))
            messages.append(UserMessage(role="user", content=result))
            continue
        call = ToolCall(id=str(number), requestor="assistant", **found)
        messages.append(AssistantMessage(role="assistant", content=None, tool_calls=[call]))
        messages.append(ToolMessage(id=str(number), content=result, requestor="assistant", role="tool"))
    world = import_module(f"tau2.domains.{env.domain}.environment").get_environment
    parts = (
        EnvironmentEvaluator.calculate_reward(world, env._case, messages),
        CommunicateEvaluator.calculate_reward(env._case, messages),
    )
    assert {one.value for one in env._case.evaluation_criteria.reward_basis} == {"DB", "COMMUNICATE"}
    return float(np.prod([one.reward for one in parts]))


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_official_solution_satisfies_the_customer(domain, user) -> None:
    env, solved = make("Tau2-v0", domain=domain, user=user), []
    for task in range(env.tasks):
        env.reset(seed=0, options={"task": task})
        play(env, env.oracle())
        solved.append(env._ended and env._solved)
    assert (len(solved), sum(solved)) == (sum(DOMAINS[domain]),) * 2


@pytest.mark.parametrize(("domain", "count"), [("retail", 1000), ("airline", 200)])
def test_the_score_of_changed_conversations_is_the_official_one(domain, count, user) -> None:
    env, rng, rewards = make("Tau2-v0", domain=domain, user=user), np.random.default_rng(0), []
    for _ in range(count):
        env.reset(seed=0, options={"task": int(rng.integers(env.tasks))})
        *plan, bye = env.oracle()
        changed = [one for one in mutated([*plan, bye], env, rng) if "arguments" in json.loads(one)]
        if rng.random() < 0.3:
            changed.insert(int(rng.integers(len(changed) + 1)), said("It costs 1,234 dollars."))
        if rng.random() < 0.2:  # what the customer had to learn is left out
            bye = said("I have done all that I can.")
        actions = [*changed, bye]
        results = play(env, actions)
        assert env._ended and env._solved == official(env, actions, results), (env.task_key(env.task), actions)
        rewards.append(env._solved)
    assert 0.05 < np.mean(rewards) < 0.95


def test_the_customer_hears_the_official_words(user) -> None:
    from tau2.utils import DATA_DIR

    env = make("Tau2-v0", domain="airline", user=user)
    first, _ = env.reset(seed=4)
    calls = [one for one in env.oracle() if "arguments" in json.loads(one)]
    play(env, calls)
    assert first == "Please help me." and env.step(said("Which one?")).observation == "Go on."
    last = SEEN[-1]
    told = last["messages"][0]["content"]
    assert last["model"] == "someone" and last["temperature"] == 0 and last["path"] == "/v1/chat/completions"
    assert told.startswith((DATA_DIR / "tau2/user_simulator/simulation_guidelines.md").read_text())
    assert str(env._case.user_scenario) in told
    words = [("user", "Hi! How can I help you today?"), ("assistant", first), ("user", "Which one?")]
    assert [(one["role"], one["content"]) for one in last["messages"][1:]] == words
    assert "Authorization" not in last["headers"]
    other, asked = pickle.loads(pickle.dumps(env)), len(SEEN)
    assert "waits" in env.step(said(" ")).observation and len(SEEN) == asked
    assert env.oracle() == [] and not env._ended and other.step(said("Why?")).observation == "Go on."


def test_the_oracle_says_goodbye_until_the_customer_leaves() -> None:
    answers = iter(["I need help.", "And this?", "###TRANSFER###"])
    answer = lambda *_: (200, {"choices": [{"message": {"content": next(answers)}}]})  # noqa: E731
    with serve(answer) as url:
        env = make("Tau2-v0", domain="retail", user=f"api:m@{url}")
        env.reset(seed=0)
        play(env, env.oracle())
        assert not env._ended and len(env.oracle()) == 1
        step = env.step(env.oracle()[0])
    assert step.terminated and step.reward == 1


def test_a_key_goes_to_the_address_of_the_environment_alone(monkeypatch, user) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("OPENAI_BASE_URL", user.partition("@")[2])
    make("Tau2-v0", domain="retail", user="api:a/b").reset(seed=0)
    assert SEEN[-1]["model"] == "a/b" and SEEN[-1]["headers"]["Authorization"] == "Bearer key"


@pytest.mark.parametrize(
    "bad", [(500, "down"), (200, {"choices": []}), (200, {"choices": [{"message": {"content": " "}}]}), (401, "key")]
)
def test_a_customer_who_cannot_answer_is_a_failure_and_no_zero(bad, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ragen_envs.benchmarks.tau2._TRIES", 0)
    turns = iter(range(100))
    with serve(lambda *all: customer(*all) if next(turns) == 0 else bad) as url:
        env = make("Tau2-v0", domain="retail", user=f"api:m@{url}")
        env.reset(seed=0)
        with pytest.raises(ConnectionError, match=url):
            env.step(said("Who are you?"))
        with pytest.raises(ConnectionError, match=url):
            env.reset(seed=1)
        command = ["bench", "tau2_retail", "--user", f"api:m@{url}", "--policy", "oracle", "--tasks", "2"]
        result = CliRunner().invoke(app, [*command, "--out", str(tmp_path)])
    rows = [json.loads(line) for line in (tmp_path / "oracle" / "episodes.jsonl").read_text().splitlines()]
    assert result.exit_code == 1 and [one["excluded"] for one in rows] == [True, True], result.output


def test_splits_are_official_and_users_are_named(user) -> None:
    for domain, (train, test) in DOMAINS.items():
        sizes = [make("Tau2-v0", domain=domain, user=user, split=one).tasks for one in ("base", "train", "test")]
        assert sizes == [train + test, train, test]
        with pytest.raises(BadEnvKwargs, match="user"):
            make("Tau2-v0", domain=domain)
        with pytest.raises(BadEnvKwargs, match="split"):
            make("Tau2-v0", domain=domain, user=user, split="full")
        for wrong in ("someone", "api:", "api:@http://x", "hf:x@http://x", "api:m@x", 3):
            with pytest.raises(Exception, match="user"):
                make("Tau2-v0", domain=domain, user=wrong)
        env = make("Tau2-v0", domain=domain, user=user, without="test")
        keys = {env.task_key(task) for task in range(env.tasks)}
        held_out = make("Tau2-v0", domain=domain, user=user, split="test")
        assert keys and not keys & {held_out.task_key(task) for task in range(test)}
        env.reset(seed=0)
        assert len(env.policy) > 5000 and "done" not in [one["function"]["name"] for one in env.tools]
    with pytest.raises(BadEnvKwargs, match="telecom has none"):
        make("Tau2-v0", user=user)
