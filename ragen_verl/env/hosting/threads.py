"""A bounded pool of threads for environment calls, with a timeout per call; an environment that hangs costs no thread.

A Python thread cannot be stopped from outside. A call that exceeds its time is therefore abandoned: a new thread
replaces its thread in the pool at once, and if the call ever returns, its thread ends. Threads are daemons, so a hung
one does not keep the process alive; those of anyio and of `concurrent.futures` are none.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["EnvTimeout", "EnvWorkers"]


class EnvTimeout(TimeoutError):
    """An environment call exceeded its time."""


class EnvWorkers:
    """A pool of `size` threads that run environment calls for any number of episodes and event loops.

    Args:
        size: the number of calls that may run at the same time.

    Attributes:
        abandoned: the number of calls so far that were given up because they exceeded their time.
    """

    def __init__(self, size: int = 8) -> None:
        if size < 1:
            raise ValueError(f"size is {size}; a pool needs at least one thread.")
        self.size = size
        self.abandoned = 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        for _ in range(size):
            self._start_thread()

    async def call(self, function: Callable[..., Any], *args: Any, timeout: float, **kwargs: Any) -> Any:
        """Run `function(*args, **kwargs)` in a thread and return its result; the event loop continues meanwhile.

        Args:
            function: the call; its exceptions are raised here, `SystemExit` and the like as `RuntimeError`.
            timeout: the seconds it may run. Waiting for a free thread does not count.

        Raises:
            EnvTimeout: the call ran longer; its thread was replaced.
        """
        if self._closed:
            raise RuntimeError("The pool of environment threads is closed.")
        loop = asyncio.get_running_loop()
        job = _Job(lambda: function(*args, **kwargs), timeout, loop, loop.create_future())
        self._jobs.put(job)
        try:
            value, error = await job.future
        except asyncio.CancelledError:
            job.cancelled = True  # if it has not started, it never will
            raise
        if error is None:
            return value
        if isinstance(error, Exception):
            raise error
        raise RuntimeError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Let the threads end after the waiting calls. Further calls are refused."""
        self._closed = True
        for _ in range(self.size):
            self._jobs.put(None)

    def __enter__(self) -> EnvWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_thread(self) -> None:
        threading.Thread(target=self._work, name="ragen-env", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.cancelled:
                continue
            job.tell(self._watch, job)
            outcome = job.run()
            with self._lock:
                job.finished = True
                abandoned = job.abandoned
            if abandoned:
                return  # another thread has replaced this one
            job.tell(job.settle, outcome)
            del job, outcome  # an idle thread keeps no environment alive

    def _watch(self, job: _Job) -> None:
        # In the event loop, when the call starts.
        job.timer = job.loop.call_later(job.timeout, self._expire, job)

    def _expire(self, job: _Job) -> None:
        # In the event loop. The lock decides whether the call has just returned or is given up.
        with self._lock:
            if job.finished:
                return
            job.abandoned = True
            self.abandoned += 1
        self._start_thread()
        job.settle((None, EnvTimeout(f"no answer within {job.timeout:g} s")))


class _Job:
    """One call; `finished` and `abandoned` are guarded by the pool's lock, the future belongs to the event loop."""

    def __init__(
        self, call: Callable[[], Any], timeout: float, loop: asyncio.AbstractEventLoop, future: asyncio.Future
    ) -> None:
        self.call, self.timeout, self.loop, self.future = call, timeout, loop, future
        self.finished = self.abandoned = self.cancelled = False
        self.timer: asyncio.TimerHandle | None = None

    def run(self) -> tuple[Any, BaseException | None]:
        try:
            return self.call(), None
        except BaseException as error:  # even SystemExit, which must not end a thread of the pool
            return None, error

    def tell(self, function: Callable[..., None], argument: Any) -> None:
        """Have the event loop call a function; a loop that is closed by now is ignored."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, argument)

    def settle(self, outcome: tuple[Any, BaseException | None]) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_result(outcome)
