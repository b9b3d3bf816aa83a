"""Environments behind HTTP: the application that `ragen-verl env serve` runs and `client.RemoteEnv` talks to.

    POST   /ENV-ID/sessions/SESSION/make    {"number": 0, "kwargs": {...}}
    POST   /ENV-ID/sessions/SESSION/reset   {"number": n, "seed": 1, "options": {"rollout_index": 0}}
    POST   /ENV-ID/sessions/SESSION/step    {"number": n, "action": "Up"}
    POST   /ENV-ID/sessions/SESSION/oracle  {"number": n}
    POST   /ENV-ID/sessions/SESSION/random_action  {"number": n, "rng": {...}}
    DELETE /ENV-ID/sessions/SESSION
    GET    /health

The client chooses SESSION, 32 hexadecimal digits, and numbers its requests from 0. The server keeps the reply to the
last number and repeats it if the number arrives again, so a request that is sent twice is done once. A reply with a
status other than 200 has a body `{"error": {"kind", "type", "text"}}`; its kind is environment, recipe, lost, full,
token or request.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ragen_envs.common.shared import release
from ragen_envs.serving.allowance import Allowance
from ragen_envs.serving.deadline import UNTIL

from ragen_verl.env import registry
from ragen_verl.env.core import Env
from ragen_verl.env.hosting.process import EnvProcesses
from ragen_verl.env.hosting.session import failure, perform, to_json, view
from ragen_verl.env.hosting.threads import EnvTimeout, EnvWorkers
from ragen_verl.errors import MissingExtra, RecipeError, adding

try:
    from fastapi import Depends, FastAPI, Request, Response
except ImportError:
    raise MissingExtra(f"An environment server needs FastAPI: run {adding('serve')}.") from None

__all__ = ["LOOPBACK", "Session", "Sessions", "Settings", "create_app"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SESSION = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Settings:
    """The environments of a server, and its limits.

    Args:
        ids: the environments; empty for all that are installed.
        token: the bearer token that requests need; with "" they need none.
        max_sessions: the highest number of open sessions.
        idle_seconds: a session without a request for this time is closed; data that environments share, such as a
            shop, are released when none was built on them for this time.
        step_seconds: the time limit of one call of an environment.
        threads: the number of threads for environments; `processes` is the number for those with that isolation.
        request_seconds: the time in which a client has to send a request with its body.
        max_bytes: the limit of a request's body.
        files, urls: folders and beginnings of addresses that clients may name in arguments; see `Allowance`.

    Raises:
        RecipeError: a limit is not above 0.
        UnknownEnv: an id is not installed.
    """

    ids: Sequence[str] = ()
    token: str = ""
    max_sessions: int = 4096
    idle_seconds: float = 600.0
    step_seconds: float = 60.0
    threads: int = 16
    processes: int = 4
    request_seconds: float = 10.0
    max_bytes: int = 2 << 20
    files: Sequence[str] = ()
    urls: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in (
            *("max_sessions", "idle_seconds", "step_seconds", "request_seconds"),
            *("threads", "processes", "max_bytes"),
        ):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise RecipeError(f"{name.replace('_', '-')} is {value}; set it above 0.")
        Allowance(self.files, self.urls)
        for id in self.ids:
            if "://" in id:
                raise RecipeError(f"{id} is on a server already: give its address to those who play it.")
            registry.check(id)

    def served(self) -> list[str]:
        """The full ids of the environments."""
        return sorted({registry.resolve(id) for id in self.ids}) if self.ids else registry.ids()


class _Refusal(Exception):
    """A request is refused; the arguments are the status, the kind and one sentence."""

    def __init__(self, status: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.body = {"error": {"kind": kind, "type": kind, "text": text}}


@dataclass
class Session:
    """One environment of one client; `lock` admits one request at a time."""

    id: str
    workers: EnvWorkers
    build: Callable[..., Env]
    env: Env | None = None
    number: int = -1
    reply: tuple[int, bytes] = (500, b"{}")
    used: float = field(default_factory=time.monotonic)
    closed: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Sessions:
    """All sessions of a server, and the threads and processes that they run in."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ids = set(settings.served())
        self.allowance = Allowance(settings.files, settings.urls)
        self.open: dict[str, Session] = {}
        self.threads = EnvWorkers(settings.threads)
        self.processes = EnvProcesses(settings.processes, settings.step_seconds)

    def find(self, id: str, name: str, call: str, number: int) -> Session:
        """The session `name`; a request `make` opens it."""
        session = self.open.get(name)
        if session is None:
            if call != "make":
                raise _Refusal(404, "lost", "there is no such session: it was closed, or was idle for too long")
            if number != 0:
                raise _Refusal(409, "lost", f"a session begins with request 0, not {number}")
            session = self._new(id, name)
        session.used = time.monotonic()
        return session

    def _new(self, id: str, name: str) -> Session:
        if not _SESSION.fullmatch(name):
            raise _Refusal(400, "request", "a session's name has to be 32 hexadecimal digits")
        if len(self.open) >= self.settings.max_sessions:
            raise _Refusal(503, "full", f"all {self.settings.max_sessions} sessions are taken (--max-sessions)")
        try:
            full = registry.resolve(id)
            if full not in self.ids:
                raise RecipeError(f"This server does not serve {full}; it serves {', '.join(sorted(self.ids))}.")
            isolated = registry.isolation(full) == "process"
        except RecipeError as error:
            raise _refused(error) from error
        process = self.processes.worker() if isolated else None
        workers, make = (process.threads, process.make) if process else (self.threads, registry.make)
        session = self.open[name] = Session(full, workers, partial(make, full))
        return session

    async def answer(self, name: str, session: Session, call: str, body: dict[str, Any]) -> tuple[int, bytes]:
        """Do a request; a repeated number gets the earlier reply again."""
        number = body.get("number")
        async with session.lock:
            if session.closed:
                raise _Refusal(404, "lost", "the session is closed")
            if number == session.number >= 0:
                return session.reply
            if number != session.number + 1 or (call == "make") != (number == 0):
                raise _Refusal(409, "lost", f"request {number} does not follow request {session.number}")
            session.reply = await self._do(name, session, call, body)
            session.number = number
            session.used = time.monotonic()
            return session.reply

    async def _do(self, name: str, session: Session, call: str, body: dict[str, Any]) -> tuple[int, bytes]:
        def run() -> bytes:
            try:
                if call != "make":
                    return to_json(perform(session.env, {"options": None, **body, "call": call}))
                kwargs = body.get("kwargs", {})
                self.allowance.check(registry.builder(session.id), kwargs)
                session.env = session.build(**kwargs)
                return to_json({"view": view(session.env)})
            finally:
                if session.closed and session.env is not None:  # the session was given up during the call
                    session.env.close()

        try:
            return 200, await session.workers.call(run, timeout=self.settings.step_seconds)
        except Exception as error:
            if isinstance(error, EnvTimeout) or call == "make":
                session.closed = True
                self.open.pop(name, None)
            refused = _refused(error)
            return refused.status, to_json(refused.body)

    async def close(self, name: str) -> None:
        """Close a session after its present call."""
        session = self.open.pop(name, None)
        if session is None:
            return
        async with session.lock:
            if not session.closed:
                session.closed = True
                if session.env is not None:
                    await self._quietly(session)

    async def _quietly(self, session: Session) -> None:
        try:
            await session.workers.call(session.env.close, timeout=self.settings.step_seconds)
        except Exception as error:
            print(f"{session.id}: close: {type(error).__name__}: {error}", flush=True)

    async def expire(self) -> None:
        """Close idle sessions, and release what no environment uses or asked for as long; this never returns."""
        while True:
            await asyncio.sleep(min(self.settings.idle_seconds / 4, 10.0))
            oldest = time.monotonic() - self.settings.idle_seconds
            idle = [name for name, one in self.open.items() if one.used < oldest and not one.lock.locked()]
            await asyncio.gather(*map(self.close, idle))
            release(oldest)

    async def shut(self) -> None:
        """Close all sessions, the threads and the processes."""
        await asyncio.gather(*map(self.close, list(self.open)))
        self.threads.close()
        self.processes.close()


def _refused(error: Exception) -> _Refusal:
    refused = _Refusal(422 if isinstance(error, RecipeError) else 500, "", "")
    refused.body = {"error": failure(error)}
    return refused


def create_app(settings: Settings) -> FastAPI:
    """The application; its sessions are `app.state.sessions`.

    A server without a token answers only requests whose host is a loopback address, so that no web page can reach it.
    """
    sessions = Sessions(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(sessions.expire())
        yield
        task.cancel()
        await sessions.shut()

    async def allow(request: Request) -> None:
        if not settings.token:
            if _host(request) not in LOOPBACK:
                raise _Refusal(403, "request", "a server without a token answers on this machine only")
        elif not hmac.compare_digest(request.headers.get("authorization", "").encode(), _bearer(settings.token)):
            raise _Refusal(401, "token", "the token is missing or not this server's")

    app = FastAPI(
        lifespan=lifespan, dependencies=[Depends(allow)], docs_url=None, redoc_url=None, openapi_url=None
    )  # fmt: skip
    app.state.sessions = sessions

    @app.exception_handler(_Refusal)
    async def refuse(request: Request, refusal: _Refusal) -> Response:
        # the rest of a body that is too late or too long is not waited for
        headers = {"connection": "close"} if refusal.status in (408, 413) else None
        return Response(to_json(refusal.body), refusal.status, headers, "application/json")

    @app.get("/health")
    async def health() -> dict[str, int]:
        return {"sessions": len(sessions.open), "max_sessions": settings.max_sessions}

    @app.post("/{id:path}/sessions/{name}/{call}")
    async def post(id: str, name: str, call: str, request: Request) -> Response:
        if call not in _FIELDS:
            raise _Refusal(404, "request", f"there is no call {call[:20]!r}: the calls are {', '.join(_FIELDS)}")
        until = request.scope.get(UNTIL, asyncio.get_running_loop().time() + settings.request_seconds)
        try:
            async with asyncio.timeout_at(until):
                body = await _body(request, call, settings.max_bytes)
        except TimeoutError:
            raise _Refusal(408, "request", f"it was not there within {settings.request_seconds:g} s") from None
        session = sessions.find(id, name, call, body["number"])
        return _json(*await sessions.answer(name, session, call, body))

    @app.delete("/{id:path}/sessions/{name}")
    async def delete(id: str, name: str) -> Response:
        await sessions.close(name)
        return _json(200, b"{}")

    return app


def _host(request: Request) -> str | None:
    """The host of the request without its port; None where it cannot be read."""
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname
    except ValueError:
        return None


def _bearer(token: str) -> bytes:
    return f"Bearer {token}".encode()


def _json(status: int, body: bytes) -> Response:
    return Response(body, status, media_type="application/json")


# the keys that each call's body needs besides the number: key -> types
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "make": {"kwargs": (dict,)},
    "reset": {"seed": (int,), "options": (dict, type(None))},
    "step": {"action": (object,)},
    "oracle": {},
    "random_action": {"rng": (dict,)},
}


async def _body(request: Request, call: str, max_bytes: int) -> dict[str, Any]:
    """The body, read up to the limit and checked."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise _Refusal(415, "request", "the body has to be application/json")
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > max_bytes:
            raise _Refusal(413, "request", f"the body is longer than {max_bytes} bytes")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise _Refusal(400, "request", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise _Refusal(400, "request", "the body is not a JSON object")
    for key, types in {"number": (int,), **_FIELDS[call]}.items():
        if key not in body or not isinstance(body[key], types) or (isinstance(body[key], bool) and int in types):
            raise _Refusal(400, "request", f"the body's {key!r} is missing or of the wrong type")
    return body
