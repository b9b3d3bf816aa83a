"""A rollout of another package, which calls the model itself, turned round: it waits where it would call."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

_IDLE_SECONDS = 3600.0

Messages = tuple[tuple[str, str], ...]
"""Role and text of each."""
Ask = Callable[[Messages], Awaitable[str]]
"""What stands where the model would be called: all messages so far, to the model's."""


class Inverted:
    """One rollout in a thread with an event loop of its own; it keeps no environment alive.

    `outgoing` is the queue of what it hands over: the messages that the model is to answer, then the finished episode
    or an exception.
    """

    def __init__(self, play: Callable[[Ask], Coroutine[Any, Any, Any]]) -> None:
        self.outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answer: asyncio.Future[str] | None = None
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)  # leaves the caller's own loop alone
        self._loop = self._runner.get_loop()
        self._task: asyncio.Task[Any] = self._loop.create_task(play(self._ask))
        self._thread = threading.Thread(target=self._run, name="ragen-rollout", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._runner:
                outcome = self._loop.run_until_complete(self._task)
        except BaseException as error:  # a cancellation is no Exception
            outcome = error if isinstance(error, Exception) else RuntimeError(f"the rollout was ended: {error!r}")
        self.outgoing.put(outcome)

    async def _ask(self, messages: Messages) -> str:
        self._answer = self._loop.create_future()
        self.outgoing.put(messages)
        return await asyncio.wait_for(self._answer, _IDLE_SECONDS)

    def answer(self, text: str) -> None:
        """Give the text that the last messages asked for; a rollout that has ended since says so itself."""
        self._call(lambda: self._answer.done() or self._answer.set_result(text))

    def stop(self, seconds: float) -> None:
        """Cancel what is left of the rollout and wait so long for its thread."""
        self._call(self._task.cancel)
        if self._thread is not threading.current_thread():  # where the garbage collector may run
            self._thread.join(seconds)

    def _call(self, function: Callable[[], Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the rollout has ended
            self._loop.call_soon_threadsafe(function)
