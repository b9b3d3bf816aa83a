"""The server against clients that want its files, its addresses, its descriptors or its sessions."""

from __future__ import annotations

import gc
import inspect
import json
import re
import select
import socket
import time
from functools import partial
from itertools import count
from uuid import uuid4
from weakref import ref

import httpx
import pytest
from env_servers import registering, server_processes, serving
from ragen_envs.common.shared import share
from ragen_envs.serving.allowance import HUB, Allowance
from ragen_envs.serving.server import Settings
from rough_envs import Count
from toy_chat import wait_for

from ragen_verl import make
from ragen_verl.env import ids, registry
from ragen_verl.errors import RecipeError


class Opens(Count):
    """Takes what names a file or an address, and opens nothing."""

    external_arguments = ("table",)

    def __init__(self, table=None, note=None):
        super().__init__()


@pytest.fixture(scope="module", autouse=True)
def registered():
    with registering(Count=Count, Opens=Opens):
        yield


def made(server, id="Opens-v0", number=0, headers=(), **kwargs):
    """The answer to the request that opens a session."""
    url = f"{server.url}/{id}/sessions/{uuid4().hex}/make"
    return httpx.post(url, json={"number": number, "kwargs": kwargs}, headers=dict(headers), timeout=60, verify=False)


def named(text):
    """A statement about the arguments of environments that holds a text in each of its possible places."""
    return [{"table": text}, {"note": text}, {"note": [{"deep": [text]}]}, {"note": {text: 1}}]


FORBIDDEN = [
    *("/etc/passwd", "~/.ssh/id_rsa", "../secret.json", "tests", "/", "file:///etc/passwd", "FILE:/etc/passwd"),
    *("http://169.254.169.254/latest", "https://good.example.evil.example/a", "http://good.example@evil.example/a"),
    *("hf://datasets/a/b", "s3://bucket/key", "zip://a.csv::https://evil.example", "https://good.example/open/../x"),
    *("https://good.example/open/%2e%2e/x", "https://good.example:8443/open/x", "https://good.example/other"),
]


@pytest.mark.parametrize("text", FORBIDDEN)
def test_nothing_outside_is_opened_for_clients(tmp_path, text):
    allowance = Allowance([tmp_path], ["https://good.example/open/"])
    for kwargs in named(text):
        with pytest.raises(RecipeError, match="this server does not open for its clients"):
            allowance.check(partial(Opens), kwargs)


def test_what_is_allowed_is_opened(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "table.csv").write_text("a")
    (tmp_path / "secret.csv").write_text("b")
    (tmp_path / "open" / "link.csv").symlink_to(tmp_path / "secret.csv")
    allowance = Allowance([tmp_path / "open"], ["https://good.example/open/", f"{HUB}openai/"])
    for text in (f"{tmp_path}/open/table.csv", "https://good.example/open/x?y=1", "HTTPS://GOOD.example/open/"):
        for kwargs in named(text):
            allowance.check(Opens, kwargs)
    allowance.check(Opens, {"table": "openai/gsm8k", "note": "openai/other: yes/no?"})
    for text in (
        f"{tmp_path}/open/link.csv",
        f"{tmp_path}/open/../secret.csv",
        f"{tmp_path}/open/none/../../secret.csv",
    ):
        with pytest.raises(RecipeError, match="--allow-files"):
            allowance.check(Opens, {"table": text})
    with pytest.raises(RecipeError, match="--allow-urls"):
        allowance.check(Opens, {"table": "stranger/set"})


def test_every_argument_for_a_file_or_an_address_is_declared():
    kinds = re.compile(r"(^|_)(dataset|data|dir|path|file|files|folder|url|corpus|questions|games)$")
    for id in ids():
        builder = registry.builder(id)
        parameters = inspect.signature(builder).parameters.values()
        wanted = {one.name for one in parameters if kinds.search(one.name) and "str" in str(one.annotation)}
        while isinstance(builder, partial):
            builder = builder.func
        assert wanted <= set(builder.external_arguments), id


def test_a_server_refuses_files_and_addresses_of_clients(tmp_path):
    table = tmp_path / "table.jsonl"
    table.write_text(json.dumps({"question": "1 + 1?", "answer": "2"}) + "\n")
    asked = [("StaticQA-v0", {"dataset": str(table)}), ("SearchQA-v0", {"url": "http://127.0.0.1:9/search"})]
    with serving(Settings()) as server:
        for id, kwargs in asked:
            answer = made(server, id, **kwargs)
            assert answer.status_code == 422 and "does not open for its clients" in answer.json()["error"]["text"]
        assert made(server, "SearchQA-v0").status_code == 200
    with serving(Settings(files=[str(tmp_path)], urls=["http://127.0.0.1:9/search"])) as server:
        assert [made(server, id, **kwargs).status_code for id, kwargs in asked] == [200, 200]
        env = make(f"{server.url}/StaticQA-v0", dataset=str(table))
        assert "1 + 1?" in env.reset(seed=0)[0]
        env.close()


def test_the_command_allows_what_it_is_told(tmp_path):
    with server_processes(["SearchQA", "--allow-urls", "http://127.0.0.1:9/"]) as [(url, _)]:
        for address, status in (("http://127.0.0.1:9/a", 200), ("http://127.0.0.1:8/a", 422)):
            body = {"number": 0, "kwargs": {"url": address}}
            assert (
                httpx.post(f"{url}/SearchQA-v0/sessions/{uuid4().hex}/make", json=body, timeout=60).status_code
                == status
            )


@pytest.mark.parametrize("bad", [{"files": ["/no/such/folder"]}, {"urls": ["good.example"]}, {"request_seconds": 0}])
def test_an_allowance_that_cannot_work_is_refused(bad):
    with pytest.raises(RecipeError):
        Settings(**bad)


# -- requests that are not what they should be ------------------------------------------------------------------------


def test_a_wrong_first_number_takes_no_session():
    with serving(Settings(max_sessions=2)) as server:
        for number in (1, -1, 7, 10**30):
            answer = made(server, "Count-v0", number)
            assert (answer.status_code, answer.json()["error"]["kind"]) == (409, "lost")
        assert made(server, "Count-v0").status_code == made(server, "Count-v0").status_code == 200


@pytest.mark.parametrize("host", ["[", "[::1", "]", "", "a b", "127.0.0.1@evil"])
def test_a_host_that_cannot_be_read_is_refused(host):
    with serving(Settings()) as server, socket.create_connection(("127.0.0.1", server.port), 20) as line:
        line.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert line.recv(100).split()[1] in (b"400", b"403")


BEGUN = [
    b"",
    b"POST",
    b"POST /Count-v0/sessions/ HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    b"POST /Count-v0/sessions/" + b"0" * 32 + b"/make HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /hea",
]


@pytest.mark.parametrize("begun", BEGUN, ids=range(len(BEGUN)))
def test_a_request_begun_and_never_ended_is_dropped(begun):
    with serving(Settings(request_seconds=0.3)) as server:
        lines = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(50)]
        for line in lines:
            line.sendall(begun)
        for line in lines:
            while line.recv(4096):
                pass
            line.close()
        wait_for(lambda: not server.server.server_state.connections, seconds=20)
        assert made(server, "Count-v0").status_code == 200


def test_a_connection_is_not_kept_for_the_rest_of_a_late_body():
    with serving(Settings(request_seconds=0.3)) as server:
        with socket.create_connection(("127.0.0.1", server.port), 30) as line:
            line.sendall(BEGUN[3])
            reply = b"".join(iter(partial(line.recv, 4096), b""))
        assert reply.startswith(b"HTTP/1.1 408") and b"connection: close" in reply.lower()


def test_requests_without_end_and_without_readers_are_dropped():
    request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with serving(Settings()) as server, socket.create_connection(("127.0.0.1", server.port), 5) as line:
        with pytest.raises(ConnectionError):
            for _ in range(200):
                line.sendall(request * 1000)
        assert httpx.get(f"{server.url}/health").status_code == 200


def test_the_rest_of_a_body_that_is_too_long_is_not_read():
    head = f"POST /Opens-v0/sessions/{uuid4().hex}/make HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(Settings(max_bytes=1000)) as server, socket.create_connection(("127.0.0.1", server.port), 5) as line:
        line.sendall(head.encode())
        with pytest.raises(ConnectionError):
            for _ in range(5_000):
                line.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def test_headers_and_body_have_one_time_together():
    begun, rest = BEGUN[3][:-1], BEGUN[3][-1:]
    with serving(Settings(request_seconds=1)) as server:
        slow = socket.create_connection(("127.0.0.1", server.port), 30)
        slow.sendall(begun[:9])
        time.sleep(0.35)
        silent = socket.create_connection(("127.0.0.1", server.port), 30)
        time.sleep(0.35)
        slow.sendall(begun[9:] + rest)  # the headers are whole, the body has begun
        first, _, _ = select.select([slow, silent], [], [], 30)
        assert first == [slow], "which came first and has to go first"
        assert slow.recv(4096).startswith(b"HTTP/1.1 408")
        for line in (slow, silent):
            line.close()


def large() -> object:
    return type("Large", (), {})()


def test_what_sessions_shared_is_released_when_none_uses_it():
    class Shares(Count):
        def __init__(self):
            super().__init__()
            self.large = share(large)

    with registering(Shares=Shares), serving(Settings(idle_seconds=0.2)) as server:
        env, other = make(f"{server.url}/Shares-v0"), make(f"{server.url}/Count-v0")
        env.reset(seed=0)
        held = ref(share(large).value)
        env.close()
        seeds = count()
        wait_for(lambda: other.reset(seed=next(seeds)) and gc.collect() >= 0 and held() is None, seconds=20)
        other.close()


def test_a_slow_step_is_no_slow_request():
    with serving(Settings(request_seconds=0.2)) as server:
        env = make(f"{server.url}/Count-v0", slow=0.6)
        env.reset(seed=1)
        assert env.step("a").observation.startswith("1 of")
        env.close()
