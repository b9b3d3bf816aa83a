"""A rollout of another package that calls the model itself, inverted: it waits for a text instead of calling."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

__all__ = ["Ask", "Inverted", "Messages"]

_IDLE_SECONDS = 3600.0

Messages = tuple[tuple[str, str], ...]
"""Role and text of each."""
Ask = Callable[[Messages], Awaitable[str]]
"""The function that replaces the call of the model: it takes all messages so far and returns the model's."""


class Inverted:
    """One rollout in a thread with its own event loop; it does not keep the environment alive.

    `outgoing` is the queue of its results: the messages that the model has to answer, and at last the finished episode
    or an exception.
    """

    def __init__(self, play: Callable[[Ask], Coroutine[Any, Any, Any]]) -> None:
        self.outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answer: asyncio.Future[str] | None = None
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)  # not the caller's loop
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
        """Answer the last messages with a text; a rollout that has ended meanwhile reports it by itself."""
        self._call(lambda: self._answer.done() or self._answer.set_result(text))

    def stop(self, seconds: float) -> None:
        """Cancel the rollout and wait at most `seconds` for its thread."""
        self._call(self._task.cancel)
        if self._thread is not threading.current_thread():  # the garbage collector may call this in any thread
            self._thread.join(seconds)

    def _call(self, function: Callable[[], Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the rollout has ended
            self._loop.call_soon_threadsafe(function)
