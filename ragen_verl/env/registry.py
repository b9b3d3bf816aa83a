"""The registry of environments by id. They are declared by packages or registered here, and imported only when used.

A package declares its environments in its own pyproject:

    [project.entry-points."ragen_verl.envs"]
    MyTask-v0 = "my_package.my_task:MyTask"

The value names an `Env` class or any callable that returns one (a `functools.partial` makes a variant). A class derived
from plain `gymnasium.Env`, with Discrete or Text actions, is played through the adapter of "gymnasium:...". A declared
environment is known in every process of a run; `register` reaches the calling process only.

An id with a prefix, "gymnasium:Taxi-v4", goes to an adapter, which a package declares under that prefix:

    [project.entry-points."ragen_verl.env_adapters"]
    mygym = "my_package.adapter:MyGymEnv"

`make("mygym:Name", key=1)` calls `MyGymEnv("Name", key=1)`; it returns an `Env`, or raises `UnknownEnv` for the name. A
function `MyGymEnv.names()`, if there is one, lists names quickly; an id that lacks its prefix is then recognised.
"""

from __future__ import annotations

import dis
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

import gymnasium

from ragen_verl.declarations import declarations
from ragen_verl.env.core import Env
from ragen_verl.errors import BadEnvKwargs, RecipeError, UnknownEnv, nearest

__all__ = [
    "ADAPTERS",
    "GROUP",
    "adapters",
    "as_env",
    "builder",
    "check",
    "faults",
    "ids",
    "isolation",
    "make",
    "playable",
    "register",
    "resolve",
]

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
        RecipeError: the id has no version, or already names another environment.
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
        UnknownEnv: no environment has this id.
        BadEnvKwargs: the environment does not take these arguments.
        RecipeError: it cannot be imported or is no Env.
    """
    resolved = resolve(id)
    builder = _builder(resolved)
    _check_kwargs(resolved, builder, kwargs)
    return as_env(resolved, builder(**kwargs))


def as_env(name: str, built: Any) -> Env:
    """Return `built` as an `Env`, adapted if it is a plain gymnasium environment; else raise RecipeError."""
    if isinstance(built, Env):
        return built
    if isinstance(built, gymnasium.Env):
        return _plain().BuiltEnv(name, built)
    raise RecipeError(
        f"{name} builds a {type(built).__name__}: it must return an object derived from ragen_verl.Env or "
        "gymnasium.Env."
    )


def check(id: str, kwargs: Mapping[str, Any] | None = None) -> None:
    """Raise the error of `make` for an unknown id or unknown arguments, without building the environment."""
    resolved = resolve(id)
    _check_kwargs(resolved, _builder(resolved), kwargs or {})


def builder(id: str) -> Callable[..., Env]:
    """Return the builder of the environment `id`, a class or a callable that returns an Env; raises like `check`."""
    return _builder(resolve(id))


def isolation(id: str) -> str:
    """Return where the calls of an environment run, "thread" or "process" (`Env.isolation`)."""
    target = builder(id)
    while isinstance(target, partial):
        target = target.func
    return getattr(target, "isolation", Env.isolation)


def ids() -> list[str]:
    """Return every known id, sorted."""
    return sorted(_known())


def resolve(id: str) -> str:
    """Return the full id of `id` ("Sokoban" -> "Sokoban-v0").

    Raises:
        UnknownEnv: there is none; the message gives the nearest known id, or all of them.
    """
    for look in (lambda: None, _forget):  # a package may have been installed since the first look
        look()
        known = _known()
        if id in known or _adapted(id):
            return id
        prefix, colon, _ = str(id).partition(":")
        if (fault := _scan(ADAPTERS).faults.get(prefix) if colon else _scan(GROUP).faults.get(id)) is not None:
            raise RecipeError(fault)
        versions = [(int(m["version"]), full) for full in known if (m := _ID.fullmatch(full)) and m["name"] == id]
        if versions:
            return max(versions)[1]
    raise UnknownEnv(_unknown(id, known))


def _unknown(id: str, known: Iterable[str]) -> str:
    """The message about an unknown id, with the nearest known id (with its prefix where an adapter knows the name)."""
    prefix, colon, name = str(id).partition(":")
    if colon:
        near = nearest(prefix, {one: f"{one}:{name or '...'}" for one in adapters()})
        return f"There is no environment {id!r}: {near}"
    # Compared without the version: "sokoban" and "Sokobann-v1" both mean Sokoban-v0.
    bare = {_without_version(full): full for full in known}
    prefixed = {_without_version(name): f"{prefix}:{name}" for prefix in adapters() for name in _names(prefix)}
    near = nearest(_without_version(str(id)), {**prefixed, **bare})
    if near.startswith("known are"):
        near = nearest("", list(known))
        begins = (one for one in adapters() if str(id).casefold().startswith(one))
        others = ", ".join(f"{one}:..." for one in adapters())
        near = next((f"did you mean {one}:{id}?" for one in begins), f"{near[:-1]}; of other packages {others}.")
    return f"There is no environment {id!r}: {near}"


def _without_version(id: str) -> str:
    return re.sub(r"-v\d*$", "", id)


def _names(prefix: str) -> list[str]:
    """Names that an adapter knows without importing its package: the result of its entry point's `names()`, if any."""
    try:
        return list(getattr(_load(f"The adapter {prefix}:", _scan(ADAPTERS).entries[prefix]), "names", list)())
    except Exception:  # a fault of the adapter must not hide the unknown id that is being reported
        return []


def adapters() -> list[str]:
    """Return the prefixes of ids that go to an adapter, sorted."""
    return sorted(_scan(ADAPTERS).entries)


def _adapted(id: str) -> bool:
    """Whether an id consists of the prefix of an adapter and a name."""
    prefix, _, name = str(id).partition(":")
    return bool(name) and prefix in _scan(ADAPTERS).entries


def faults() -> list[str]:
    """Return a sentence about each declaration of an installed package that cannot be used."""
    return [*_scan(GROUP).faults.values(), *_scan(ADAPTERS).faults.values()]


def _known() -> dict[str, _Entry]:
    return {**_scan(GROUP).entries, **_registered}


class _Scan(NamedTuple):
    """The declarations of installed packages in a group: usable entries, and name -> why another is not usable."""

    entries: dict[str, _Entry]
    faults: dict[str, str]


@cache
def _scan(group: str) -> _Scan:
    """Return the declarations in `group`; they are cached, since reading the packages' metadata takes milliseconds."""
    declared: dict[str, dict[str, _Entry]] = {}
    points, unreadable = declarations(group)
    for point in points:
        package = point.dist.name if point.dist else "an unnamed package"
        declared.setdefault(point.name, {}).setdefault(point.value, _Entry(point.value, package=package))
    found = _Scan({}, dict(zip(unreadable, unreadable, strict=True)))
    for name, entries in declared.items():
        packages = [entry.package for entry in entries.values()]
        if group == GROUP and not _ID.fullmatch(name):
            found.faults[name] = (
                f"The package {packages[0]} declares the environment {name!r}, whose id must end in a version: "
                f"call it {name + '-v0'!r}."
            )
        elif len(entries) > 1:
            found.faults[name] = f"The packages {' and '.join(packages)} both declare {name}: uninstall one of them."
        else:
            [found.entries[name]] = entries.values()
    return found


def _forget() -> None:
    """Forget the declarations, so that the installed packages are read again."""
    _scan.cache_clear()


def _builder(id: str) -> Callable[..., Env]:
    """Import what `id` names and return the callable that builds it."""
    if (entry := _known().get(id)) is None:
        prefix, _, name = id.partition(":")
        return partial(_load(f"The adapter {prefix}:", _scan(ADAPTERS).entries[prefix]), name)
    target = playable(id, _load(id, entry))
    return partial(target, **entry.kwargs) if entry.kwargs else target


def playable(name: str, target: Callable[..., Any]) -> Callable[..., Any]:
    """Return `target`, or a builder of an `Env` from it where it is a plain gymnasium class."""
    plain = isinstance(target, type) and issubclass(target, gymnasium.Env) and not issubclass(target, Env)
    return _plain().Declared(name, target) if plain else target


def _plain() -> Any:
    """The module that adapts plain gymnasium environments; it imports this one, so it is imported late."""
    return importlib.import_module("ragen_envs.adapters.declared")


def _load(id: str, entry: _Entry) -> Callable[..., Any]:
    """Import the target of an entry; foreign code runs here, so every error is caught."""
    target: Any = entry.target
    if isinstance(target, str):
        module, _, attribute = target.partition(":")
        try:
            target = importlib.import_module(module.strip())
            for name in attribute.strip().split("."):
                target = getattr(target, name)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not _raised_by_code(error):
                raise  # the user's
            raise RecipeError(
                f"{id} of {entry.package} cannot be imported from {entry.target!r} ({type(error).__name__}: {error}): "
                "repair that package."
            ) from error
    if not callable(target) or (isinstance(target, type) and not issubclass(target, gymnasium.Env)):
        raise RecipeError(
            f"{id} of {entry.package} names {entry.target!r}: make that a class derived from ragen_verl.Env or "
            "gymnasium.Env, or a callable that returns one."
        )
    return target


def _raised_by_code(error: BaseException) -> bool:
    """Whether the code contains the `raise`; a signal interrupts at any other instruction."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    return dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]] == "RAISE_VARARGS"


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
