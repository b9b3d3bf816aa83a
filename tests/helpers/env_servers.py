"""Environment servers for tests: in a thread of this process, or as processes that can be killed. Real HTTP both."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from ragen_envs.serving.deadline import with_deadline
from ragen_envs.serving.server import Sessions, Settings, create_app

from ragen_verl.env import Env, register, registry

HERE = Path(__file__).parent


class Server:
    """A server in a thread: `url`, and what it holds."""

    def __init__(self, settings: Settings, wrap: Callable | None = None, port: int = 0) -> None:
        app = create_app(settings)
        self.sessions: Sessions = app.state.sessions
        self.listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            wrap(app) if wrap else app,
            http=with_deadline(settings.request_seconds),
            log_level="critical",
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]}, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        self.listener.close()


@contextmanager
def registering(**classes: type[Env]) -> Iterator[None]:
    """While open, each class is known by its name and version 0; servers of this process play them too."""
    before = dict(registry._registered)
    for name, cls in classes.items():
        register(f"{name}-v0", cls)
    try:
        yield
    finally:
        registry._registered.clear()
        registry._registered.update(before)


@contextmanager
def serving(settings: Settings | None = None, **options) -> Iterator[Server]:
    server = Server(settings or Settings(), **options)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def server_processes(*commands: list[str]) -> Iterator[list[tuple[str, subprocess.Popen]]]:
    """`ragen-verl env serve --port 0 ...` for each list of arguments, started together."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "ragen_verl", "env", "serve", "--port", "0", *command],
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE,
        )
        for command in commands
    ]
    try:
        yield [(re.search(r"http://[\w.:]+\d", process.stdout.readline()).group(), process) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stdout.close()
