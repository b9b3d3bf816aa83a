"""Environments behind `ragen-verl env serve`: `http://host:port/ENV-ID` is an id like any other.

Several addresses separated by commas share the load, and no episode is lost when one of the servers is: see
`session.SessionEnv`. Two environment variables are read when an environment is built: RAGEN_VERL_ENV_TOKEN is sent as a
bearer token; RAGEN_VERL_ENV_TIMEOUT (default 20) is the number of seconds to wait for an answer before the client asks
whether the server is alive.

Every request of a session has a number. A server answers a repeated number with the same reply, so the client can send
a request again whose answer was lost, and the environment does not take a second step.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from ragen_verl.env.hosting.session import EnvFailed, SessionEnv, WorldLost, raise_failure, to_json
from ragen_verl.env.http import client
from ragen_verl.errors import RecipeError

__all__ = ["TIMEOUT", "TOKEN", "RemoteEnv", "ServerUnreachable", "addresses", "http", "https"]

TOKEN, TIMEOUT = "RAGEN_VERL_ENV_TOKEN", "RAGEN_VERL_ENV_TIMEOUT"
_CONNECT_SECONDS = 5.0
_HEALTH_SECONDS = 2.0
_ATTEMPTS = 4
_REST_SECONDS = 2.0


class ServerUnreachable(RecipeError, ConnectionError):
    """No server accepted the environment."""


class _Server:
    """The state of one server as this process knows it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.host = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        self.sessions = 0
        self.seen = False
        self.rests_until = 0.0

    def rest(self) -> None:
        """Prefer the other servers for a while."""
        self.rests_until = time.monotonic() + _REST_SECONDS


_servers: dict[str, _Server] = {}
_lock = threading.Lock()
_chance = random.Random()  # not the global generator, which users may have seeded


class RemoteEnv(SessionEnv):
    """An environment on a server.

    Args:
        id: addresses of one environment, separated by commas, like "http://a:8000/Sokoban-v0,http://b:8000/Sokoban-v0".
        kwargs: the arguments of the environment.

    Raises:
        ServerUnreachable: no server accepted the environment.
        RecipeError: an address or a setting is wrong, or the server refuses the token, the id or the arguments.
    """

    def __init__(self, id: str, /, **kwargs: Any) -> None:
        urls = addresses(id)
        self.kwargs = kwargs
        self.token = os.environ.get(TOKEN, "")
        self.timeout = _timeout()
        self._urls = urls
        self._server: _Server | None = None
        self._session, self._number = "", 0
        # if no server has ever answered, a wrong address is more likely than servers that are being restarted
        patience = self.patience if any(server.seen for server in self._servers()) else 0.5
        try:
            self._stay(patience=patience)
        except WorldLost as error:
            example = urlsplit(urls[0]).path.strip("/")
            raise ServerUnreachable(
                f"No server gives the environment {id} ({error}): start one with `ragen-verl env serve {example}`, or "
                "correct the address."
            ) from error

    def _servers(self) -> list[_Server]:
        with _lock:
            return [_servers.setdefault(url, _Server(url)) for url in self._urls]

    def _open(self) -> dict[str, Any]:
        """Open a session on the server with the fewest sessions of this process, or else on one of the others."""
        now, problems = time.monotonic(), []
        order = sorted(self._servers(), key=lambda one: (one.rests_until > now, one.sessions, _chance.random()))
        for server in order:
            self._server, self._session, self._number = server, uuid4().hex, 0
            with _lock:
                server.sessions += 1
            try:
                return self._ask({"call": "make", "kwargs": self.kwargs})["view"]
            except BaseException as error:
                self._forget()
                if not isinstance(error, WorldLost):
                    raise
                problems.append(str(error))
        raise WorldLost("; ".join(problems))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send the next request of the session, again if necessary, as long as the server is alive."""
        server, fields = self._server, dict(request)
        url = f"{server.url}/sessions/{self._session}/{fields.pop('call')}"
        body = to_json({**fields, "number": self._number})
        self._number += 1
        try:
            return self._send(server, url, body)
        except WorldLost:
            server.rest()
            if self._there:
                self._forget()
            raise

    def _send(self, server: _Server, url: str, body: bytes) -> dict[str, Any]:
        import httpx

        attempts = 0
        while True:
            try:
                answer = client().post(url, content=body, headers=self._headers(), timeout=self._timeouts())
                problem = f"status {answer.status_code}"
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise WorldLost(f"{server.host}: {error}") from error
            except httpx.ReadTimeout as error:
                if not self._lives(server):
                    raise WorldLost(f"{server.host}: no answer within {self.timeout:g} s") from error
                continue  # the server is alive and still working: the repeated request is answered when it is done
            except httpx.TransportError as error:
                problem = str(error) or type(error).__name__
            else:
                reply = _reply(answer)
                if reply is not None:
                    server.seen = True
                    return _read(reply, server.host)
            attempts += 1
            if attempts == _ATTEMPTS:
                raise WorldLost(f"{server.host}: {problem}")
            time.sleep(0.05 * 2**attempts * (0.5 + _chance.random()))

    def _lives(self, server: _Server) -> bool:
        import httpx

        try:
            return (
                client().get(f"{server.host}/health", headers=self._headers(), timeout=_HEALTH_SECONDS).status_code
                == 200
            )
        except httpx.TransportError:
            return False

    def _leave(self) -> None:
        import httpx

        url = f"{self._server.url}/sessions/{self._session}"
        self._forget()
        with contextlib.suppress(httpx.TransportError):  # the server closes idle sessions by itself
            client().delete(url, headers=self._headers(), timeout=_HEALTH_SECONDS)

    def _forget(self) -> None:
        """Remove the session from its server's count; if this object is used again it opens another session."""
        server, self._server = self._server, None
        if server is not None:
            with _lock:
                server.sessions -= 1

    def _headers(self) -> dict[str, str]:
        token = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Content-Type": "application/json", **token}

    def _timeouts(self) -> Any:
        import httpx

        return httpx.Timeout(self.timeout, connect=_CONNECT_SECONDS)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_server": None}


def http(rest: str, /, **kwargs: Any) -> RemoteEnv:
    """The adapter of the prefix "http": build the environment at the address "http:`rest`" (or several addresses)."""
    return RemoteEnv(f"http:{rest}", **kwargs)


def https(rest: str, /, **kwargs: Any) -> RemoteEnv:
    """Build the environment at the address "https:`rest`"; see `http`."""
    return RemoteEnv(f"https:{rest}", **kwargs)


def addresses(id: str) -> list[str]:
    """The addresses in an id, without a slash at the end.

    Raises:
        RecipeError: one is no http address of an environment, or they name different environments.
    """
    urls = [url.strip().rstrip("/") for url in id.split(",")]
    for url in urls:
        split = urlsplit(url)
        if split.scheme not in ("http", "https") or not split.netloc or not split.path.strip("/"):
            raise RecipeError(f"{url!r} is no address of an environment: write http://host:port/ENV-ID.")
        if split.query or split.fragment:
            raise RecipeError(f"{url!r} ends in a query: give arguments of the environment as kwargs.")
    if len({urlsplit(url).path for url in urls}) > 1:
        raise RecipeError(f"The addresses {', '.join(urls)} name different environments: they share the load of one.")
    return list(dict.fromkeys(urls))


def _timeout() -> float:
    text = os.environ.get(TIMEOUT, "20")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise RecipeError(f"The environment variable {TIMEOUT} is {text!r} but has to be a number of seconds above 0.")
    return seconds


def _reply(answer: Any) -> dict[str, Any] | None:
    """The server's own reply, or None if something else, such as a proxy, answered instead."""
    try:
        reply = answer.json()
    except ValueError:
        return None
    own = isinstance(reply, dict) and (answer.status_code == 200 or "error" in reply)
    return reply if own else None


def _read(reply: dict[str, Any], host: str) -> dict[str, Any]:
    error = reply.get("error")
    if error is None:
        return reply
    if error["kind"] in ("lost", "full"):
        raise WorldLost(f"{host}: {error['text']}")
    if error["kind"] == "token":
        raise RecipeError(f"{host} refuses the token: set the environment variable {TOKEN} to the server's.")
    if error["kind"] == "recipe":
        raise_failure(error)
    raise EnvFailed(error["text"])
