"""The server by itself, asked with plain HTTP: numbers, sessions, tokens, limits; and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import httpx
import numpy as np
import pytest
from env_servers import registering, server_processes, serving
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ragen_envs.serving.server import Settings
from rough_envs import STEPS, Count
from toy_chat import wait_for
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.env.hosting.session import to_json
from ragen_verl.errors import RecipeError, UnknownEnv


@pytest.fixture(scope="module", autouse=True)
def registered():
    with registering(Count=Count):
        yield


@pytest.fixture(scope="module")
def server():
    with serving(Settings(["Count", "FrozenLake"], max_sessions=50, max_bytes=10_000, threads=8)) as one:
        yield one


class Talk:
    """One session, by hand."""

    def __init__(self, server, id="Count-v0", name=None, **headers):
        self.url = f"{server.url}/{id}/sessions/{name or uuid4().hex}"
        self.http = httpx.Client(headers=headers, verify=False)  # reading certificates takes 30 ms

    def __call__(self, call, number, **fields):
        return self.http.post(f"{self.url}/{call}", json={"number": number, **fields})

    def begin(self, **kwargs):
        assert self("make", 0, kwargs=kwargs).status_code == 200
        assert self("reset", 1, seed=3, options=None).status_code == 200
        return self


def kind(answer):
    return answer.status_code, answer.json()["error"]["kind"]


def test_a_number_is_done_once(server):
    talk = Talk(server).begin(name="once")
    first = talk("step", 2, action="a")
    assert [talk("step", 2, action="a").content for _ in range(3)] == [first.content] * 3 and STEPS["once"] == 1
    assert talk("step", 3, action="b").json()["step"][0].startswith("2 of")
    for number in (2, 5, 0, -1, 10**30):
        assert kind(talk("step", number, action="c")) == (409, "lost")
    assert STEPS["once"] == 2


def test_a_number_sent_many_times_at_once_is_done_once(server):
    talk = Talk(server).begin(name="many", slow=0.2)
    with ThreadPoolExecutor(8) as pool:
        replies = [reply.content for reply in pool.map(lambda _: talk("step", 2, action="a"), range(8))]
    assert len(set(replies)) == 1 and STEPS["many"] == 1


def test_an_exception_is_a_reply_too(server):
    talk = Talk(server).begin(name="raises")
    replies = [talk("step", 2, action="raise") for _ in range(2)]
    assert [kind(reply) for reply in replies] == [(500, "environment")] * 2
    assert replies[0].content == replies[1].content and STEPS["raises"] == 0
    assert talk("step", 3, action="a").status_code == 200


def test_a_generator_that_is_none_is_an_error():
    with serving(Settings(ids=["Countdown"])) as server:
        talk = Talk(server, "Countdown-v0")
        talk("make", 0, kwargs={})
        talk("reset", 1, seed=1, options=None)
        for number, rng in enumerate(({}, {"bit_generator": "os"}, {"bit_generator": "PCG64", "state": []}), start=2):
            assert kind(talk("random_action", number, rng=rng)) == (500, "environment")
        assert kind(talk("random_action", 5, rng=3)) == (400, "request")
        rng = np.random.default_rng(0).bit_generator.state
        assert talk("random_action", 5, rng=rng).json()["rng"] != rng


def test_sessions_end(server):
    talk = Talk(server).begin()
    assert talk.http.delete(talk.url).status_code == talk.http.delete(talk.url).status_code == 200
    assert kind(talk("step", 2, action="a")) == (404, "lost")
    assert kind(talk("reset", 0, seed=1, options=None)) == (404, "lost")


def test_a_session_that_cannot_be_built_leaves_nothing(server):
    before = len(server.sessions.open)
    assert kind(Talk(server, "FrozenLake-v0")("make", 0, kwargs={"size": 1})) == (422, "recipe")
    assert kind(Talk(server, "Sokoban-v0")("make", 0, kwargs={})) == (422, "recipe")
    assert kind(Talk(server, "http://a/Count-v0")("make", 0, kwargs={})) == (422, "recipe")
    assert kind(Talk(server, name="short")("make", 0, kwargs={})) == (400, "request")
    assert len(server.sessions.open) == before


def test_a_step_that_hangs_loses_its_session_alone():
    with serving(Settings(step_seconds=0.5, threads=1)) as server:
        hung, other = Talk(server).begin(slow=0.0), Talk(server).begin()
        answer = hung.http.post(f"{hung.url}/step", json={"number": 2, "action": "hang"}, timeout=60)
        assert kind(answer) == (500, "environment") and "0.5 s" in answer.json()["error"]["text"]
        assert kind(hung("step", 3, action="a")) == (404, "lost")
        assert other("step", 2, action="a").status_code == 200


def test_no_more_sessions_than_allowed():
    with serving(Settings(max_sessions=2)) as server:
        first = Talk(server).begin()
        Talk(server).begin()
        late = Talk(server)
        assert kind(late("make", 0, kwargs={})) == (503, "full")
        first.http.delete(first.url)
        assert late("make", 0, kwargs={}).status_code == 200


def test_idle_sessions_are_closed():
    with serving(Settings(idle_seconds=0.5)) as server:
        for _ in range(3):
            assert Talk(server)("make", 0, kwargs={}).status_code == 200
        wait_for(lambda: httpx.get(f"{server.url}/health", verify=False).json()["sessions"] == 0, seconds=60)


def test_the_token_is_asked_for():
    with serving(Settings(token="sesame")) as server:
        for headers in ({}, {"authorization": "Bearer other"}, {"authorization": "sesame"}):
            assert kind(Talk(server, **headers)("make", 0, kwargs={})) == (401, "token")
            assert httpx.get(f"{server.url}/health", headers=headers).status_code == 401
        Talk(server, authorization="Bearer sesame", host="elsewhere.example").begin()


def test_web_pages_get_nothing(server):
    """A page can send forms, and can have its own name resolved to this machine; both are refused."""
    talk = Talk(server)
    body = json.dumps({"number": 0, "kwargs": {}})
    assert talk.http.post(f"{talk.url}/make", content=body, headers={"content-type": "text/plain"}).status_code == 415
    assert Talk(server, host="page.example:80")("make", 0, kwargs={}).status_code == 403


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"[" * 9000, 400),
        (b"\xff\xfe", 400),
        (b'{"number": 2}', 400),
        (b'{"action": "a"}', 400),
        (b'{"number": true, "action": "a"}', 400),
        (b'{"number": "2", "action": "a"}', 400),
        (b'{"number": 2, "action": "' + b"a" * 10_000 + b'"}', 413),
    ],
)
def test_bodies_that_are_refused(server, body, status):
    talk = Talk(server).begin()
    answer = talk.http.post(f"{talk.url}/step", content=body, headers={"content-type": "application/json"})
    assert kind(answer) == (status, "request")
    assert talk("step", 2, action="a").status_code == 200, "the session goes on"
    talk.http.delete(talk.url)


@given(body=st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(to_json))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_body_breaks_the_server(server, body):
    for call in ("make", "reset", "step", "other"):
        url = f"{server.url}/Count-v0/sessions/{'0' * 32}/{call}"
        answer = httpx.post(url, content=body, headers={"content-type": "application/json"}, verify=False)
        assert 400 <= answer.status_code < 500


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_sessions": 0}, "max-sessions is 0"),
        ({"idle_seconds": float("nan")}, "idle-seconds is nan"),
        ({"ids": ["http://a:1/Count-v0"]}, "is on a server already"),
    ],
)
def test_settings_that_cannot_work(options, says):
    with pytest.raises(RecipeError, match=says):
        Settings(**options)
    with pytest.raises(UnknownEnv):
        Settings(["NoSuch-v0"])


# -- the command ------------------------------------------------------------------------------------------------------


def run(*arguments, **env):
    done = CliRunner(env={"RAGEN_VERL_ENV_TOKEN": "", **env}).invoke(app, ["env", "serve", *arguments])
    return done.exit_code, " ".join(done.output.split())


def test_the_command_refuses_what_cannot_be_right(server):
    code, said = run("--host", "0.0.0.0")
    assert code == 2 and "can be reached from other machines" in said and "RAGEN_VERL_ENV_TOKEN" in said
    code, said = run("--port", str(server.port))
    assert code == 2 and f"Cannot listen at 127.0.0.1, port {server.port}" in said
    code, said = run("Sokobann")
    assert code == 2 and "did you mean Sokoban-v0" in said


@pytest.mark.parametrize(
    ("package", "args", "name"),
    [
        ("fastapi", ["env", "serve"], "FastAPI"),
        ("uvicorn", ["env", "serve"], "uvicorn"),
    ],
)
def test_a_missing_package_names_its_extra(package, args, name):
    code = f"import sys; sys.modules[{package!r}] = None; from ragen_verl.cli import app; app({args!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert name in done.stderr and 'pip install "ragen-verl[serve]"' in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_command_serves_and_ends():
    with server_processes(["FrozenLake", "--token", "sesame"]) as [(url, process)]:
        headers = {"authorization": "Bearer sesame"}
        assert httpx.get(f"{url}/health").status_code == 401
        assert httpx.get(f"{url}/health", headers=headers).json()["sessions"] == 0
        process.terminate()
        assert process.wait(30) in (0, -15)
