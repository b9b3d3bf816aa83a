"""A model behind an API that misbehaves: what comes back is retried, recorded and never scored."""

from __future__ import annotations

import pytest
from endpoint import FAULTS, endpoint
from ragen_lab.evaluate.plan import episodes
from ragen_lab.evaluate.policies import Endpoint, Sampling
from ragen_lab.evaluate.runner import evaluate
from ragen_lab.evaluate.spec import Spec
from ragen_lab.evaluate.summary import results
from test_runner import LENGTHS, recipe

from ragen_verl.errors import RecipeError

ANSWER = "<think>straight down</think><answer>Down</answer>"


def play(url: str, folder, **sampling) -> list[dict]:
    ragen = recipe(max_turns=2)
    policy = Endpoint("m", url, Sampling(**{"retries": 0, "timeout": 5.0, **sampling}))
    return evaluate(ragen, policy, episodes(ragen, states=3), folder, lengths=LENGTHS, settings={})


def test_messages_are_those_of_the_protocol(tmp_path):
    with endpoint(ANSWER) as (url, requests):
        records = play(url, tmp_path, concurrency=1, temperature=0.3)
    first, second = requests[:2]
    assert [one["role"] for one in first["messages"]] == ["system", "user"]
    assert [one["role"] for one in second["messages"]] == ["system", "user", "assistant", "user"]
    assert second["messages"][2]["content"] == ANSWER and second["messages"][:2] == first["messages"]
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("m", 0.3, 400)
    assert records[0]["turns"][0]["executed"] == ["Down"] and records[0]["turns"][0]["reasoning"] == "straight down"
    assert records[0]["usage"]["completion_tokens"] == 7 * len(records[0]["turns"])


def test_seeds_of_requests_follow_from_the_episode(tmp_path):
    seeds = []
    for name in "ab":
        with endpoint(ANSWER) as (url, requests):
            play(url, tmp_path / name, concurrency=4)
        seeds.append(sorted(one["seed"] for one in requests))
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == len(seeds[0])


@pytest.mark.parametrize("fault", ["429", "500", "closed", "slow"])
def test_a_refused_request_is_made_again(tmp_path, fault):
    with endpoint(ANSWER, fault, fault) as (url, _):
        records = play(url, tmp_path, retries=3, concurrency=1, timeout=0.5)
    assert not any(one["excluded"] for one in records)


def test_the_pause_after_429_is_the_servers(tmp_path):
    with endpoint(ANSWER, "429", retry_after="1.5") as (url, requests):
        play(url, tmp_path, retries=1, concurrency=1)
    first, second = requests[:2]
    assert second["messages"] == first["messages"] and second["time"] - first["time"] >= 1.5


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_request_excludes_its_episode_alone(tmp_path, fault):
    with endpoint(ANSWER, fault) as (url, _):
        records = play(url, tmp_path, concurrency=1, timeout=0.5 if fault == "slow" else 5.0)
    assert [one["stop_reason"] == "engine_error" for one in records] == [True, *[False] * (len(records) - 1)]
    assert records[0]["error"]
    found = results({"m": records})["policies"]["m"]["val/FrozenLake"]
    assert (found["excluded"], found["states"]) == (1, 2)
    with endpoint(ANSWER) as (url, requests):
        again = play(url, tmp_path, concurrency=1)
    assert not any(one["excluded"] for one in again) and 1 <= len(requests) <= 2, "only the failed one is played"


def test_a_server_that_is_not_there_excludes_every_episode(tmp_path):
    records = play("http://127.0.0.1:9/v1", tmp_path)
    assert all(one["stop_reason"] == "engine_error" for one in records)


@pytest.mark.parametrize(
    ("text", "form", "name", "at"),
    [
        ("oracle", "oracle", "oracle", None),
        ("api:gpt-4o", "api", "gpt-4o", None),
        ("api:org/m@http://127.0.0.1:1/v1", "api", "org/m", "http://127.0.0.1:1/v1"),
        ("hf:/models/x", "hf", "/models/x", None),
        ("run:runs/a", "run", "runs/a", None),
        ("run:runs/a@best", "run", "runs/a", "best"),
    ],
)
def test_policies_are_named_by_text(text, form, name, at):
    assert Spec.parse(text) == Spec(text, form, name, at)


@pytest.mark.parametrize("text", ["orcale", "api:", "hf", "ftp:x", ""])
def test_a_policy_of_no_known_form_is_refused(text):
    with pytest.raises(RecipeError, match="has no known form"):
        Spec.parse(text)


def test_openai_without_a_key_is_refused(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RecipeError, match="set OPENAI_API_KEY"):
        Endpoint("gpt-4o")
