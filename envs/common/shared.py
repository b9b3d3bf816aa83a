"""What all instances of a process share because it is large: built once per arguments, let go when nobody uses it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")
_KEPT = 4  # that nobody uses, the last ones: an episode that ends is followed by another one on the same data


class Shared(Generic[T]):
    """Holds a value that is never changed; a copy, a pickled one too, is the same one in its process.

    Attributes:
        value: what was built.
    """

    def __init__(self, source: tuple[Any, ...]) -> None:
        self.source = source
        build, *arguments = source
        self.value = build(*arguments)

    def __deepcopy__(self, memo: dict) -> Shared[T]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return share, self.source


_alive: WeakValueDictionary[tuple, Shared[Any]] = WeakValueDictionary()
_recent: OrderedDict[tuple, Shared[Any]] = OrderedDict()
_building: WeakValueDictionary[tuple, Any] = WeakValueDictionary()  # a lock for each source in hand
_lock = threading.Lock()  # held for the dictionaries alone, never while something is built


def share(build: Callable[..., T], *arguments: Hashable) -> Shared[T]:
    """Return what `build(*arguments)` makes, made at the first call; different arguments do not wait for each other.

    Args:
        build: a function of a module, so that it can be pickled by its name.
        arguments: of `build`.
    """
    source = (build, *arguments)
    with _lock:
        gate = _building.setdefault(source, threading.Lock())
    with gate:
        found = _alive.get(source)
        if found is None:
            found = Shared(source)
        with _lock:
            _alive[source] = _recent[source] = found
            _recent.move_to_end(source)
            while len(_recent) > _KEPT:
                _recent.popitem(last=False)
    return found


def forget() -> None:
    """Let go of everything, for tests."""
    with _lock:
        _alive.clear()
        _recent.clear()
