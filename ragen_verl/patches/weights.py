"""Patches for the push of weights from verl 0.9.1's trainer into vLLM 0.24 to 0.32.

They are for tied weights, for adapters, and for an engine that fails during a push. A push uses one socket: the
trainer's process sends a bucket of tensors and waits until the engine's process has loaded it
(verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from functools import wraps
from types import ModuleType
from typing import Any

import wrapt

__all__ = [
    "PATIENCE",
    "POLL",
    "WatchedSocket",
    "keep_the_answer",
    "load_in_pieces",
    "name_the_mapper",
    "of_this_cluster",
    "own_sockets",
    "watch_the_engine",
]

POLL = 0.5
"""The time between two checks of the engine while it loads a bucket, in seconds."""

PATIENCE = 600.0
"""The longest time for one bucket, in seconds; the largest bucket takes a few seconds."""

_answer: ContextVar[Future | None] = ContextVar("answer", default=None)


class WatchedSocket(wrapt.ObjectProxy):
    """A ZeroMQ socket whose `recv` ends as soon as the engine's method has ended.

    Args:
        socket: the sender's socket.
        answer: the future result of the engine's method. Only the first rank calls that method; None on the others.
    """

    def __init__(self, socket: Any, answer: Future | None) -> None:
        super().__init__(socket)
        self._self_answer = answer

    def recv(self, *args: Any, **kwargs: Any) -> bytes:
        """The socket's own `recv`.

        Raises:
            Exception: the engine's own exception, if it failed.
            TimeoutError: no message came for `PATIENCE` seconds.
        """
        answer, start = self._self_answer, time.monotonic()
        while not self.poll(POLL * 1000):
            if answer is not None and answer.done():
                answer.result()
                answer = None  # it ended without an error, so its last message will come
            elif time.monotonic() - start > PATIENCE:
                raise TimeoutError(f"The engine has not loaded a bucket of weights within {PATIENCE:g} s.")
        return self.__wrapped__.recv(*args, **kwargs)


def keep_the_answer(module: ModuleType) -> None:
    """Keep the result of the engine's method for the push; verl reads it only after the push has ended."""
    execute = module.ServerAdapter._execute_method

    @wraps(execute)
    async def keeping(self: Any, *args: Any, non_block: bool = False, **kwargs: Any) -> Any:
        result = await execute(self, *args, non_block=non_block, **kwargs)
        if non_block:
            _answer.set(None if result is None else result.future())
        return result

    module.ServerAdapter._execute_method = keeping


def watch_the_engine(module: ModuleType) -> None:
    """End a push whose engine has failed; verl waits for each bucket without a limit (line 153)."""
    sender = module.BucketedWeightSender
    init = sender._init_socket

    @wraps(init)
    def watching(self: Any) -> None:
        init(self)
        self.socket = WatchedSocket(self.socket, _answer.get())

    sender._init_socket = watching

    receiver = module.BucketedWeightReceiver
    cleanup = receiver._cleanup

    @wraps(cleanup)
    def cleaning(self: Any) -> None:
        try:
            cleanup(self)
        except BufferError:  # tensors of the failed load still use the memory; this error would hide the load's own
            self.shm = None
            cleanup(self)

    receiver._cleanup = cleaning


def of_this_cluster(handle: str) -> str:
    """A name for the socket that no other Ray cluster on this machine uses.

    verl names the socket after Ray's job, which has the number 1 in every local cluster. So two training runs on one
    machine would push their weights into each other's engines (verl/workers/rollout/vllm_rollout/utils.py:416).
    """
    cluster = os.environ.get("RAY_RAYLET_PID")
    stem, dot, suffix = handle.rpartition(".")
    return f"{stem}-{cluster}{dot}{suffix}" if cluster and handle.startswith("ipc://") else handle


def own_sockets(module: ModuleType) -> None:
    """Name the sockets of both sides by `of_this_cluster`."""
    for side in (module.BucketedWeightSender, module.BucketedWeightReceiver):

        def own(self: Any, zmq_handle: str, *args: Any, _init: Callable = side.__init__, **kwargs: Any) -> None:
            _init(self, of_this_cluster(zmq_handle), *args, **kwargs)

        side.__init__ = wraps(side.__init__)(own)


def load_in_pieces(module: ModuleType) -> None:
    """Let vLLM load weights in buckets, as verl does with one call of `load_weights` for each bucket.

    From vLLM 0.31 on, a call that holds a tied weight must also hold its original (models/utils.py:498); this check is
    switched off.
    """
    if hasattr(module.AutoWeightsLoader, "_check_skipped_aliases"):
        module.AutoWeightsLoader._check_skipped_aliases = lambda self, loaded: None


def name_the_mapper(module: ModuleType) -> None:
    """Give the mapper that verl needs for adapters its old name (verl/utils/vllm/utils.py:83)."""
    mapper = module.WeightsMapper
    if not hasattr(mapper, "get_unstacked_mapper") and hasattr(mapper, "get_rename_mapper"):
        mapper.get_unstacked_mapper = mapper.get_rename_mapper
