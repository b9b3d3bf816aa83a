"""Large values that all instances of a process share: built once per arguments, released when no instance uses them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

__all__ = ["Shared", "forget", "release", "share"]

_T = TypeVar("_T")
_KEPT = 4  # unused values that are kept, since an episode that ends is often followed by one on the same data


class Shared(Generic[_T]):
    """A holder of a value that is never changed; a copy, pickled or not, holds the same value of its process.

    Attributes:
        value: the shared value.
    """

    def __init__(self, source: tuple[Any, ...]) -> None:
        self.source = source
        build, *arguments = source
        self.value = build(*arguments)

    def __deepcopy__(self, memo: dict) -> Shared[_T]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return share, self.source


_alive: WeakValueDictionary[tuple, Shared[Any]] = WeakValueDictionary()
_recent: OrderedDict[tuple, tuple[float, Shared[Any]]] = OrderedDict()  # with the time when it was last asked for
_building: WeakValueDictionary[tuple, Any] = WeakValueDictionary()  # a lock for each value that is being built
_lock = threading.Lock()  # held only while the dictionaries are used, never while a value is built


def share(build: Callable[..., _T], *arguments: Hashable) -> Shared[_T]:
    """Return the result of `build(*arguments)`, built at the first call; different arguments do not block each other.

    Args:
        build: a function of a module, so that it can be pickled by its name.
        arguments: the arguments of `build`.
    """
    source = (build, *arguments)
    with _lock:
        gate = _building.setdefault(source, threading.Lock())
    with gate:
        found = _alive.get(source)
        if found is None:
            found = Shared(source)
        with _lock:
            _alive[source], _recent[source] = found, (time.monotonic(), found)
            _recent.move_to_end(source)
            while len(_recent) > _KEPT:
                _recent.popitem(last=False)
    return found


def release(before: float) -> None:
    """Release the values that no instance uses and that were last asked for before a time of `time.monotonic`."""
    with _lock:
        for source in [source for source, (asked, _) in _recent.items() if asked < before]:
            del _recent[source]


def forget() -> None:
    """Release all values; for tests."""
    with _lock:
        _alive.clear()
        _recent.clear()
