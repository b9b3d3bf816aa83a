"""A separate stream of Python's and numpy's global random numbers for each environment that draws from them.

Many packages call `random.choice` or `np.random.randint` and seed these generators for the whole process: two games
in two threads then change each other's draws. `GlobalRandomness` gives each game a stream of its own. While a call of
the game runs, the process's generators have the game's state; afterwards they get their earlier state back. One lock
admits one such call at a time.

The cost is that calls of these environments do not overlap within a process. The class cannot control a thread that
draws from the global generators outside of any adapter while a call runs, or other sources such as `secrets` or torch.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["GlobalRandomness"]

_LOCK = threading.RLock()
_WORD = 2**32


class GlobalRandomness:
    """The state of `random` and of numpy's global generator that belongs to one environment.

    It can be copied and pickled. It starts as if seeded with 0.
    """

    def __init__(self) -> None:
        self._states: tuple[Any, Any] | None = None
        self.seed(0)

    def seed(self, seed: int | np.random.Generator) -> None:
        """Restart the stream from an integer of 0 or more, or from the next draws of a generator."""
        generator = seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed)
        first, second = (int(word) for word in generator.integers(_WORD, size=2))
        self._states = (random.Random(first).getstate(), np.random.RandomState(second).get_state())

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Make the global generators draw from this stream within the block; other environments wait."""
        with _LOCK:
            before = _states()
            _restore(self._states)
            try:
                yield
            finally:
                self._states = _states()
                _restore(before)


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()


def _restore(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
