"""Environments by id: declared by installed packages or registered in this process, imported only when used.

A package declares its environments in its own pyproject:

    [project.entry-points."ragen_verl.envs"]
    MyTask-v0 = "my_package.my_task:MyTask"

The value names an `Env` class or any callable that returns one (a `functools.partial` makes a variant). A declared
environment is known in every process of a training; `register` reaches the calling process only.

An id with a prefix, "gymnasium:Taxi-v4", goes to an adapter, which a package declares under that prefix:

    [project.entry-points."ragen_verl.env_adapters"]
    mygym = "my_package.adapter:MyGymEnv"

`make("mygym:Name", key=1)` calls `MyGymEnv("Name", key=1)`; it returns an `Env`, or raises `UnknownEnv` for the name.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any

from ragen_verl.env.core import Env
from ragen_verl.errors import BadEnvKwargs, RecipeError, UnknownEnv

GROUP = "ragen_verl.envs"
ADAPTERS = "ragen_verl.env_adapters"
_ID = re.compile(r"(?P<name>[A-Za-z0-9][\w./-]*)-v(?P<version>\d+)")


@dataclass(frozen=True)
class _Entry:
    target: str | Callable[..., Env]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    package: str = "this process"


_registered: dict[str, _Entry] = {}


def register(id: str, entry_point: str | Callable[..., Env], **kwargs: Any) -> None:
    """Make an environment known in this process under `id`.

    Args:
        id: a name that ends in a version, like "MyTask-v0".
        entry_point: "module:attribute", or an Env class, or a callable that returns an Env.
        kwargs: arguments to build it with, which `make` may override.

    Raises:
        RecipeError: if the id has no version or already stands for something else.
    """
    if not _ID.fullmatch(id):
        raise RecipeError(f"The id {id!r} must end in a version: call it {id + '-v0'!r}.")
    entry = _Entry(entry_point, kwargs)
    known = _known().get(id)
    if known is not None and (known.target, known.kwargs) != (entry.target, entry.kwargs):
        raise RecipeError(f"The id {id!r} is taken by {known.package}: choose another name or the next version.")
    _registered.setdefault(id, entry)


def make(id: str, **kwargs: Any) -> Env:
    """Build the environment `id`; a name without a version means its highest one.

    Raises:
        UnknownEnv: if no environment has this id.
        BadEnvKwargs: if the environment does not take these arguments.
        RecipeError: if it cannot be imported or is no Env.
    """
    resolved = resolve(id)
    builder = _builder(resolved)
    _check_kwargs(resolved, builder, kwargs)
    env = builder(**kwargs)
    if not isinstance(env, Env):
        raise RecipeError(
            f"{resolved} builds a {type(env).__name__}: it must return an object derived from ragen_verl.Env."
        )
    return env


def check(id: str, kwargs: Mapping[str, Any] | None = None) -> None:
    """Raise what `make` would raise for an unknown id or unknown arguments, without building the environment."""
    resolved = resolve(id)
    _check_kwargs(resolved, _builder(resolved), kwargs or {})


def builder(id: str) -> Callable[..., Env]:
    """Return what builds the environment `id`: its class, or a callable that returns one; raises what `check` does."""
    return _builder(resolve(id))


def isolation(id: str) -> str:
    """Return what the calls of an environment run in, "thread" or "process" (`Env.isolation`)."""
    target = builder(id)
    while isinstance(target, partial):
        target = target.func
    return getattr(target, "isolation", Env.isolation)


def ids() -> list[str]:
    """Return every known id, sorted."""
    return sorted(_known())


def resolve(id: str) -> str:
    """Return the full id that `id` stands for ("Sokoban" -> "Sokoban-v0").

    Raises:
        UnknownEnv: with the known ids and the nearest of them.
    """
    for look in (lambda: None, _forget):  # a package may have been installed since the first look
        look()
        known = _known()
        if id in known or _adapted(id):
            return id
        versions = [(int(m["version"]), full) for full in known if (m := _ID.fullmatch(full)) and m["name"] == id]
        if versions:
            return max(versions)[1]
    raise UnknownEnv(_unknown_message(id, sorted(known)))


def _unknown_message(id: str, known: list[str]) -> str:
    if not known:
        return f"There is no environment {id!r}: none is installed, so reinstall ragen-verl."
    # Compare without case and version: "sokoban" or "Sokobann-v1" should both point at Sokoban-v0.
    bare = {full: full.rpartition("-v")[0].casefold() for full in known}
    wanted = re.sub(r"-v\d*$", "", str(id)).casefold()
    nearest = max(known, key=lambda full: difflib.SequenceMatcher(None, wanted, bare[full]).ratio())
    known_prefixes = "".join(f" {prefix}:..." for prefix in adapters())
    return (
        f"There is no environment {id!r}; did you mean {_nearest_prefix(id) or nearest!r}? Known: {', '.join(known)}"
        + (f"; of other packages:{known_prefixes}." if known_prefixes else ".")
    )


def _nearest_prefix(id: str) -> str | None:
    """Return `id` with the adapter's prefix that it nearly has, None where it has a known prefix or none."""
    prefix, colon, name = str(id).partition(":")
    near = difflib.get_close_matches(prefix, adapters(), n=1) if colon else []
    return f"{near[0]}:{name or '...'}" if near else None


def adapters() -> list[str]:
    """Return the prefixes of ids that go to an adapter, sorted."""
    return sorted(_adapters())


def _adapted(id: str) -> bool:
    """Whether an id has the prefix of an adapter and a name behind it."""
    prefix, _, name = str(id).partition(":")
    return bool(name) and prefix in _adapters()


def _known() -> dict[str, _Entry]:
    return {**_declared(), **_registered}


@cache
def _declared() -> dict[str, _Entry]:
    """Return what installed packages declare (reading their metadata takes milliseconds, hence the cache)."""
    found: dict[str, _Entry] = {}
    for point in entry_points(group=GROUP):
        package = point.dist.name if point.dist else "an unnamed package"
        entry = _Entry(point.value, package=package)
        if not _ID.fullmatch(point.name):
            raise RecipeError(
                f"The package {package} declares the environment {point.name!r}, whose id must end in a version: "
                f"call it {point.name + '-v0'!r}."
            )
        other = found.setdefault(point.name, entry)
        if other.target != entry.target:
            raise RecipeError(
                f"The packages {other.package} and {package} both declare {point.name}: uninstall one of them."
            )
    return found


@cache
def _adapters() -> dict[str, _Entry]:
    """Return the adapters that installed packages declare, by prefix."""
    points = entry_points(group=ADAPTERS)
    return {
        point.name: _Entry(point.value, package=point.dist.name if point.dist else "an unnamed package")
        for point in points
    }


def _forget() -> None:
    """Look at the installed packages anew."""
    _declared.cache_clear()
    _adapters.cache_clear()


def _builder(id: str) -> Callable[..., Env]:
    """Import what `id` names and return the callable that builds it."""
    if (entry := _known().get(id)) is None:
        prefix, _, name = id.partition(":")
        return partial(_load(f"The adapter {prefix}:", _adapters()[prefix]), name)
    return _load(id, entry)


def _load(id: str, entry: _Entry) -> Callable[..., Env]:
    """Import the target of an entry."""
    target = entry.target
    if isinstance(target, str):
        module, _, attribute = target.partition(":")
        try:
            target = importlib.import_module(module.strip())
            for name in attribute.strip().split("."):
                target = getattr(target, name)
        except (ImportError, AttributeError) as error:
            raise RecipeError(
                f"{id} of {entry.package} cannot be imported from {entry.target!r} ({error}): repair that package."
            ) from error
    if not callable(target) or (isinstance(target, type) and not issubclass(target, Env)):
        raise RecipeError(
            f"{id} of {entry.package} names {entry.target!r}: make that a class derived from ragen_verl.Env, or a "
            "callable that returns one."
        )
    return partial(target, **entry.kwargs) if entry.kwargs else target


def _check_kwargs(id: str, builder: Callable[..., Env], kwargs: Mapping[str, Any]) -> None:
    parameters = inspect.signature(builder).parameters.values()
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    accepted = ", ".join(p.name for p in named) or "no arguments"
    unknown = sorted(set(kwargs) - {p.name for p in named})
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise BadEnvKwargs(f"{id} does not take {', '.join(map(repr, unknown))}; it accepts {accepted}.")
    missing = [p.name for p in named if p.default is p.empty and p.name not in kwargs]
    if missing:
        raise BadEnvKwargs(f"{id} needs {', '.join(map(repr, missing))}; it accepts {accepted}.")
