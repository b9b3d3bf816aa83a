"""Environments with `isolation = "process"` on the class; they are played in a bounded pool of worker processes.

A worker is a Python process that holds any number of environments and runs one call at a time. A worker that hangs or
dies is killed and replaced. The episode whose call was running has failed; the worker's other episodes are played again
in the new one (see `session.SessionEnv`).
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ragen_verl.env import registry
from ragen_verl.env.core import Env
from ragen_verl.env.hosting.session import SessionEnv, WorldLost, failure, perform, raise_failure, view
from ragen_verl.env.hosting.threads import EnvTimeout, EnvWorkers
from ragen_verl.errors import RecipeError

__all__ = ["EnvProcess", "EnvProcesses", "ProcessDied", "ProcessEnv", "work"]

_START_SECONDS = 60.0
_FOREVER = 1e6


class ProcessDied(RuntimeError):
    """The process of an environment ended during a call."""


class EnvProcesses:
    """A pool of `size` worker processes, each started when it is first needed.

    Args:
        size: the number of processes, and so of calls that may run at the same time.
        timeout: seconds a call (building, reset or step) may take.
    """

    def __init__(self, size: int = 4, timeout: float = 60.0) -> None:
        if size < 1:
            raise ValueError(f"size is {size}; a pool needs at least one process.")
        self.workers = [EnvProcess(timeout) for _ in range(size)]
        self._next = itertools.cycle(self.workers)
        atexit.register(self.close)

    def worker(self) -> EnvProcess:
        """The process for the next episode; the processes take turns."""
        return next(self._next)

    def close(self) -> None:
        """Kill the processes. Further calls are refused."""
        atexit.unregister(self.close)
        for worker in self.workers:
            worker.close()

    def __enter__(self) -> EnvProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Untimed(EnvWorkers):
    """Threads without a time limit; the called function keeps its own."""

    async def call(self, function: Callable[..., Any], *args: Any, timeout: float, **kwargs: Any) -> Any:
        return await super().call(function, *args, timeout=_FOREVER, **kwargs)


class EnvProcess:
    """One worker process and the thread that talks to it; the process is replaced when it hangs or dies.

    Attributes:
        threads: the thread in which the rollout makes its calls, one after the other. This class limits the time of
            each call itself, so that waiting for the process, its start and the replay of an episode do not count.
        replaced: processes killed or found dead so far.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.threads = _Untimed(1)
        self.replaced = 0
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._pipe: Connection | None = None
        self._keys = itertools.count()
        self._closed = False

    def make(self, id: str, **kwargs: Any) -> ProcessEnv:
        """Build the environment `id` in the worker process; raises the errors of `registry.make` and of `ask`."""
        registry.check(id, kwargs)
        return ProcessEnv(self, id, registry.builder(id), kwargs)

    def open(self, id: str, builder: Callable[..., Env], kwargs: Mapping[str, Any]) -> tuple[tuple[int, int], dict]:
        """Build an environment in the present process; return its key and its view."""
        with self._lock:
            self._start()
            key = (self.replaced, next(self._keys))
            try:
                pickled = bytes(ForkingPickler.dumps((builder, dict(kwargs))))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise RecipeError(_not_found(id, error)) from error
            return key, self._exchange({"call": "make", "id": id, "builder": pickled, "key": key[1]})["view"]

    def ask(self, key: tuple[int, int], request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to an environment of the process and return the reply.

        Raises:
            WorldLost: the process was replaced after the environment was built.
            EnvTimeout: the call exceeded its time; the process was killed.
            ProcessDied: the process ended during the call.
            EnvFailed: the environment raised.
        """
        with self._lock:
            if key[0] != self.replaced or self._process is None:
                raise WorldLost("the process was replaced")
            return self._exchange({**request, "key": key[1]})

    def close(self) -> None:
        """Kill the process and let the thread end."""
        self._closed = True
        self.threads.close()
        if process := self._process:  # without the lock: a call that hangs holds it
            process.kill()

    def _start(self) -> None:
        if self._closed:
            raise RuntimeError("The pool of environment processes is closed.")
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._discard()
        self._pipe, far = Pipe()
        # not by multiprocessing, which would run the parent's main module again
        code = f"from ragen_verl.env.hosting.process import work; work({far.fileno()}, {os.getpid()})"
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        with far:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )
        try:
            ready = self._pipe.poll(_START_SECONDS) and self._pipe.recv() == "ready"
        except (EOFError, OSError):
            ready = False
        if not ready:
            self._discard()
            raise ProcessDied("the process for environments did not start")

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            self._pipe.send(request)
        except OSError as error:  # the process had died before, so this call is not the cause
            self._discard()
            raise WorldLost("the process was gone") from error
        try:
            if not self._pipe.poll(self.timeout):
                self._discard()
                raise EnvTimeout(f"no answer within {self.timeout:g} s, its process was killed")
            reply = self._pipe.recv()
        except (EOFError, ConnectionError) as error:
            code = self._discard()
            raise ProcessDied(f"the process of the environment ended with code {code}") from error
        if "error" in reply:
            raise_failure(reply["error"])
        return reply

    def _discard(self) -> int:
        """Kill the process; the next call that builds an environment starts another."""
        process, self._process = self._process, None
        self.replaced += 1
        self._pipe.close()
        if process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)  # if it has just ended by itself, keep its own exit code
        process.kill()
        return process.wait()


class ProcessEnv(SessionEnv):
    """An environment in a worker process."""

    patience = 5.0

    def __init__(self, worker: EnvProcess, id: str, builder: Callable[..., Env], kwargs: Mapping[str, Any]) -> None:
        self._worker, self._plan = worker, (id, builder, dict(kwargs))
        self._key = (0, 0)
        self._stay()

    def _open(self) -> dict[str, Any]:
        self._key, shown = self._worker.open(*self._plan)
        return shown

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._worker.ask(self._key, request)

    def _leave(self) -> None:
        with contextlib.suppress(Exception):
            self._worker.ask(self._key, {"call": "close"})

    def __reduce__(self) -> Any:
        raise TypeError("An environment in a worker process cannot be copied: make another one.")


def _not_found(id: str, error: BaseException) -> str:
    return (
        f"{id} asks for a process of its own, but another process cannot import it ({error}): put it into a module and "
        "declare it as an entry point."
    )


# -- in the worker process --------------------------------------------------------------------------------------------


def work(handle: int, parent: int) -> None:
    """Answer requests until the pipe closes; the process's main function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles an interrupt from the terminal
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()
    envs: dict[int, Env] = {}
    with Connection(handle) as pipe:
        pipe.send("ready")
        while True:
            try:
                request = pipe.recv()
            except (EOFError, OSError):
                return
            try:
                reply = _answer(envs, request)
                data = bytes(ForkingPickler.dumps(reply))
            except Exception as error:
                data = bytes(ForkingPickler.dumps({"error": failure(error)}))
            pipe.send_bytes(data)


def _answer(envs: dict[int, Env], request: dict[str, Any]) -> dict[str, Any]:
    key = request["key"]
    if request["call"] == "make":
        try:
            builder, kwargs = pickle.loads(request["builder"])
        except Exception as error:
            raise RecipeError(_not_found(request["id"], error)) from error
        env = envs[key] = registry.as_env(request["id"], builder(**kwargs))
        return {"view": view(env)}
    if request["call"] == "close":
        envs.pop(key).close()
        return {}
    return perform(envs[key], request)


def _end_with(parent: int) -> None:
    """End this process when the parent ends, even during a call that never returns."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
