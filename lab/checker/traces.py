"""The traces that episodes leave in the process, which a run shares among all of them."""

from __future__ import annotations

import gc
import os
import sys
import threading
import tracemalloc
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ragen_lab.checker.case import Case, Unchecked

__all__ = ["traces"]

_RESETS = 8
_KEPT = 1 << 18  # bytes an episode; a training plays tens of thousands


class _Ear:
    """A stream that notes whether this thread writes to it, and passes everything on."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._thread, self.heard = stream, threading.get_ident(), ""

    def write(self, text: str) -> int:
        """Write to the stream."""
        if threading.get_ident() == self._thread:
            self.heard = self.heard or text.strip()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def traces(case: Case) -> Iterator[str]:
    """Episodes print nothing, keep folder and os.environ as they are, and leave no files, threads and memory behind."""
    if case.subject.apart:
        raise Unchecked("it is played in a process of its own")
    gc.freeze()  # what is there already is not searched for garbage ten times: seconds each where torch is imported
    try:
        yield from _left(case)
    finally:
        gc.unfreeze()


def _left(case: Case) -> Iterator[str]:
    """The problems, where garbage is looked for among new objects only."""
    _play(case, 1)  # the first may import modules and fill caches
    before, variables, streams = _held(), dict(os.environ), (sys.stdout, sys.stderr)
    ears = sys.stdout, sys.stderr = _Ear(streams[0]), _Ear(streams[1])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python itself prints one only once
            _play(case, _RESETS)
    finally:
        sys.stdout, sys.stderr = streams
    if (folder := os.getcwd()) != case.folder:
        yield f"an episode changes the working directory to {folder}, which the whole process shares"
    if changed := sorted(name for name, _ in variables.items() ^ os.environ.items()):
        yield f"an episode changes the variable {changed[0]} of os.environ, which the whole process shares"
    for what, one, other in zip(("open files", "threads"), before, _held(), strict=True):
        if other - one >= _RESETS:
            yield f"{_RESETS} episodes leave {other - one} {what} behind: close them in reset and close()"
    if (kept := _kept(case)) > _KEPT:
        yield f"every episode keeps {kept / 1e6:.1f} MB more: forget it in reset, and share nothing that grows"
    if heard := ears[0].heard or ears[1].heard:
        yield f"an episode prints {heard[:40]!a}: a training plays thousands"


def _play(case: Case, resets: int) -> None:
    env = case.build()
    for seed in range(resets):
        list(case.episode(env, seed))
    case.calls.close(env)


def _kept(case: Case) -> float:
    """Bytes that Python and numpy hold more after each of the later episodes, at the least."""
    env, held = case.build(), []
    tracemalloc.start()
    try:
        for seed in range(_RESETS):
            list(case.episode(env, seed))
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
        case.calls.close(env)
    return min(other - one for one, other in pairwise(held[1:]))


def _held() -> tuple[int, int]:
    """The numbers of open files and of threads of this process."""
    gc.collect()
    files = len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 0
    return files, threading.active_count()
