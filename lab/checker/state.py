"""The state of environments as far as it can be seen: what differs between two of them, and their generators."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MemberDescriptorType
from typing import Any
from unittest.mock import patch

import numpy as np
from gymnasium.utils import seeding
from ragen_envs.adapters.randomness import GlobalRandomness

from ragen_verl.env.core import Env
from ragen_verl.env.hosting.session import SessionEnv

__all__ = ["generators", "made", "parts"]

_GENERATORS = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random, GlobalRandomness)
_OWN = ("rollout_index", "_dynamics", "_reset_options", "seed", "_seed", "_np_random_seed")
_DEEPEST = 6
_MOST = 100  # elements of a list among which generators are looked for


def parts(one: Env, other: Env) -> set[str]:
    """Return the attributes, as `self.a.b`, that differ between two environments; random generators are left out.

    The state of a world in another process or on a server cannot be seen. Values that cannot be compared count as
    equal.
    """
    return set() if isinstance(one, SessionEnv) else set(_parts(one, other, "self", frozenset(), _DEEPEST))


def _parts(one: Any, other: Any, path: str, above: frozenset[int], depth: int) -> Iterator[str]:
    if id(one) in above or isinstance(one, _GENERATORS) or depth < 0:
        return
    above = above | {id(one)}
    if type(one) is not type(other):
        yield path
    elif one is None or isinstance(one, (bool, int, float, complex, str, bytes, frozenset, set, range)):
        if one != other and not (one != one and other != other):  # nan counts as equal to nan
            yield path
    elif isinstance(one, np.ndarray):
        if one.dtype.kind in "biufcSUmM" and (one.shape != other.shape or one.tobytes() != other.tobytes()):
            yield path
    elif isinstance(one, Mapping):
        if list(one) != list(other):
            yield path
        else:
            for key in one:
                yield from _parts(one[key], other[key], f"{path}[{key!r}]", above, depth - 1)
    elif isinstance(one, (list, tuple)):
        if len(one) != len(other) or any(
            True for pair in zip(one, other, strict=True) for _ in _parts(*pair, path, above, depth - 1)
        ):
            yield path
    elif not isinstance(one, type) and not callable(one):
        mine, others = _attributes(one), _attributes(other)
        for name, value in mine.items():
            if name not in _OWN and name in others:
                yield from _parts(value, others[name], f"{path}.{name}", above, depth - 1)


def generators(env: Env) -> dict[str, bytes]:
    """Attribute, as `self.a.b` -> state of every random generator that an environment holds."""
    return {} if isinstance(env, SessionEnv) else dict(_generators(env, "self", frozenset(), _DEEPEST))


@contextmanager
def made(env: Env) -> Iterator[set[bytes]]:
    """The first states of the generators that are made while the context is open, as far as their makers are known.

    Known are `numpy.random.default_rng`, `gymnasium.utils.seeding.np_random` and `random.Random`, also where the
    module of the environment's class has imported them by name.
    """
    seen: set[bytes] = set()
    beginning = random.Random.__init__

    def begin(self: random.Random, *args: Any) -> None:
        beginning(self, *args)
        seen.add(pickle.dumps(self.getstate()))

    def watched(maker: Callable) -> Callable:
        def make(*args: Any, **options: Any) -> Any:
            one = maker(*args, **options)
            seen.add(pickle.dumps(one))
            return one

        return make

    homes = {np.random, seeding, *(sys.modules.get(kind.__module__) for kind in type(env.unwrapped).__mro__)}
    with ExitStack() as stack:
        stack.enter_context(patch.object(random.Random, "__init__", begin))
        for maker in (np.random.default_rng, seeding.np_random):
            for home in homes:
                for name in [name for name, value in vars(home).items() if value is maker] if home else ():
                    stack.enter_context(patch.object(home, name, watched(maker)))
        yield seen


def _generators(one: Any, path: str, above: frozenset[int], depth: int) -> Iterator[tuple[str, bytes]]:
    if isinstance(one, _GENERATORS):
        if not isinstance(one, GlobalRandomness):
            yield path.replace("self._np_random", "self.np_random"), pickle.dumps(one)
        return
    if id(one) in above or depth < 0 or isinstance(one, type) or callable(one):
        return
    named: Iterator[tuple[str, Any]]
    if isinstance(one, Mapping):
        named = ((f"{path}[{key!r}]", value) for key, value in one.items())
    elif isinstance(one, (list, tuple)):
        named = ((f"{path}[{place}]", value) for place, value in enumerate(one[:_MOST]))
    else:
        named = ((f"{path}.{name}", value) for name, value in _attributes(one).items())
    for where, value in named:
        yield from _generators(value, where, above | {id(one)}, depth - 1)


def _attributes(one: Any) -> dict[str, Any]:
    """The attributes of an instance, including those in `__slots__`."""
    found = dict(getattr(one, "__dict__", {}))
    for kind in type(one).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType) and hasattr(one, name):
                found[name] = getattr(one, name)
    return found
