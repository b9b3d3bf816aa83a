"""A model behind an API that misbehaves: what comes back is retried, recorded and never scored."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from test_runner import LENGTHS, recipe

from ragen_verl.errors import RecipeError
from ragen_verl.evaluation.plan import episodes
from ragen_verl.evaluation.policies import Endpoint, Sampling
from ragen_verl.evaluation.runner import evaluate
from ragen_verl.evaluation.spec import Spec
from ragen_verl.evaluation.summary import results

ANSWER = "<think>straight down</think><answer>Down</answer>"


def reply(text: str) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37}
    head = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
    return json.dumps({**head, "choices": [choice], "usage": usage}).encode()


@contextmanager
def server(*faults: str) -> Iterator[tuple[str, list[dict]]]:
    """An endpoint whose first requests fail as `faults` say, one each, and which answers all others."""
    requests: list[dict] = []
    left = list(faults)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                requests.append(body)
                fault = left.pop(0) if left else "none"
            if fault in ("429", "500"):
                self.send_response(int(fault))
                self.send_header("Retry-After", "0.01")
                self.end_headers()
                return
            content = {"garbage": b"<html>", "no choices": b'{"choices": []}'}.get(fault, reply(ANSWER))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if fault == "half" else content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/v1", requests
        finally:
            http.shutdown()
            thread.join()


def play(url: str, folder, **sampling) -> list[dict]:
    ragen = recipe(max_turns=2)
    policy = Endpoint("m", url, Sampling(**{"retries": 0, "timeout": 5.0, **sampling}))
    return evaluate(ragen, policy, episodes(ragen, states=3), folder, lengths=LENGTHS, settings={})


def test_messages_are_those_of_the_protocol(tmp_path):
    with server() as (url, requests):
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
        with server() as (url, requests):
            play(url, tmp_path / name, concurrency=4)
        seeds.append(sorted(one["seed"] for one in requests))
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == len(seeds[0])


@pytest.mark.parametrize("fault", ["429", "500"])
def test_a_refused_request_is_made_again(tmp_path, fault):
    with server(fault, fault) as (url, _):
        records = play(url, tmp_path, retries=3, concurrency=1)
    assert not any(one["excluded"] for one in records)


@pytest.mark.parametrize("fault", ["429", "500", "garbage", "half", "no choices"])
def test_a_failed_request_excludes_its_episode_alone(tmp_path, fault):
    with server(fault) as (url, _):
        records = play(url, tmp_path, concurrency=1)
    assert [one["stop_reason"] == "engine_error" for one in records] == [True, *[False] * (len(records) - 1)]
    assert records[0]["error"]
    found = results({"m": records})["policies"]["m"]["val/FrozenLake"]
    assert (found["excluded"], found["states"]) == (1, 2)
    with server() as (url, requests):
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
