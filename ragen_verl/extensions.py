"""Registries of what researchers vary. Packages and files outside this repository can add to them.

A registry holds one kind of thing (advantage estimators, filter strategies, ...). A decorator puts a function in it:

    @estimator("my_estimator", needs_group=True)
    def my_estimator(batch, *, sharpness: float = 2.0): ...

The module with the decorator becomes known in every process of a run in one of two ways. Both are read when a
registry is first asked for a name:

- an installed package names it in its pyproject, `[project.entry-points."ragen_verl.plugins"]`, `my = "my_package"`;
- a recipe names a file, `ragen.plugins: [my_estimator.py]`, which the environment variable `RAGEN_VERL_PLUGINS` carries
  to the workers.

The options of a function are its keyword-only parameters: their defaults are the recipe's defaults, and their
annotations are what a recipe's values are checked against: int, float, bool, str, `tuple[float, ...]`,
`Literal["a", "b"]`, `Annotated[float, Gt(0)]` with bounds of annotated-types, or `Annotated[str, Accepts(test, words)]`
for what bounds cannot say.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Generic, Optional, TypeVar

from ragen_verl.declarations import declarations
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.values import checked

__all__ = ["FILES", "GROUP", "Registry", "check_options", "load_plugins", "options_of", "use_files"]

GROUP = "ragen_verl.plugins"
"""The entry-point group."""

FILES = "RAGEN_VERL_PLUGINS"
"""The environment variable with the paths of plugin files, separated like those of `PATH`."""

_T = TypeVar("_T")

_loaded: set[str] = set()
_failed: dict[str, str] = {}  # plugin -> why it could not be imported


class Registry(Generic[_T], Mapping[str, _T]):
    """A mapping from names to things of one kind. The first look-up loads this package's own things and all plugins.

    Args:
        kind: what it holds, as in an error message: "advantage estimator".
        home: the package whose modules hold the built-in things; a look-up imports them in their order until the name
            is there. "" where the built-in things are defined beside the registry.
    """

    def __init__(self, kind: str, home: str = "") -> None:
        self.kind, self._home = kind, home
        self._modules = _modules_of(home) if home else iter(())
        self._things: dict[str, _T] = {}

    def add(self, name: str, thing: _T) -> _T:
        """Put `thing` under `name`.

        Raises:
            RecipeError: another thing has the name. Adding the same thing twice is allowed.
        """
        if not _module(thing).startswith(self._home):
            self._import()  # one of them may have the name
        known = self._things.get(name)
        if known is not None and _origin(known) != _origin(thing):
            raise RecipeError(f"The {self.kind} {name!r} exists already ({_origin(known)}): choose another name.")
        self._things[name] = thing
        return thing

    def find(self, name: str, key: str, others: Collection[str] = ()) -> _T:
        """The thing of this name.

        Args:
            name: as in the recipe.
            key: the recipe's key, for the message.
            others: names that the key takes as well, for the message.

        Raises:
            RecipeError: there is none; the message gives the nearest name, and the plugins that could not be imported.
        """
        self._load(name)
        if name in self._things:
            return self._things[name]
        broken = "".join(f" The plugin {plugin} could not be imported: {why}" for plugin, why in _failed.items())
        known = nearest(name, {*self._things, *others})
        raise RecipeError(f"{key} is {name!r}, which is no {self.kind}: {known}{broken}")

    def _import(self, name: str | None = None) -> None:
        while name not in self._things and (module := next(self._modules, None)):
            importlib.import_module(module)

    def _load(self, name: str | None = None) -> None:
        self._import(name)
        load_plugins()

    def __getitem__(self, name: str) -> _T:
        self._load(name)
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(dict(self._things))

    def __len__(self) -> int:
        self._load()
        return len(self._things)


def options_of(function: Callable) -> dict[str, inspect.Parameter]:
    """The options of a function or class: its keyword-only parameters in their order, with resolved annotations.

    Raises:
        RecipeError: an annotation that cannot be resolved, such as a name imported for type checkers only.
    """
    source = function.__init__ if inspect.isclass(function) else inspect.unwrap(function)
    parameters = inspect.signature(function).parameters.values()
    found = {one.name: one for one in parameters if one.kind is one.KEYWORD_ONLY}
    given = {name: one.annotation for name, one in found.items() if one.annotation is not one.empty}
    try:  # only those of the options: names in the other annotations need not exist at run time
        hints = typing.get_type_hints(
            types.SimpleNamespace(__annotations__=given), getattr(source, "__globals__", {}), include_extras=True
        )
    except Exception as error:
        raise RecipeError(f"The annotations of the options of {_origin(function)} cannot be read: {error}.") from error
    return {name: one.replace(annotation=hints.get(name, Any)) for name, one in found.items()}


def check_options(function: Callable, given: Mapping[str, Any], path: str, owner: str) -> dict[str, Any]:
    """The options that a recipe gives to a function, checked; options that it leaves out keep their defaults.

    Args:
        function: as registered.
        given: option -> value; null is an option left out.
        path: the block in the recipe, for messages.
        owner: what reads the options, for messages: "advantage estimator gigpo".

    Raises:
        RecipeError: an option that the function does not have, one without a default that is missing, or a value of
            another type than the parameter's, or outside its bounds.
    """
    known = options_of(function)
    found = {}
    for key, value in given.items():
        if value is None:
            continue
        if key not in known:
            raise RecipeError(f"{path}.{key} is {value!r} but {owner} does not read it: {nearest(key, list(known))}")
        one = known[key]
        hint = one.annotation if one.default is one.empty else Optional[one.annotation]  # noqa: UP045, of a value
        found[key] = checked(hint, value, f"{path}.{key}", end=f" ({owner})")
    for key, one in known.items():
        if one.default is one.empty and key not in found:
            raise RecipeError(f"{path}.{key} is missing: {owner} needs it.")
    return found


def load_plugins() -> None:
    """Import every plugin that this process has not imported yet; a failure is printed on stderr and remembered."""
    for point in _entry_points():
        _load(f"{point.name} ({point.value})", point.load)
    for path in filter(None, os.environ.get(FILES, "").split(os.pathsep)):
        _load(path, lambda path=path: _import_file(Path(path)))


def use_files(paths: Sequence[str]) -> list[str]:
    """Import a recipe's plugin files, here and, through the environment, in processes that this one starts.

    Args:
        paths: `ragen.plugins`; relative ones count from the working folder.

    Returns:
        Their absolute paths, which mean the same in every process.

    Raises:
        RecipeError: a file is not there, or cannot be imported.
    """
    found = [str(Path(one).expanduser().resolve()) for one in paths]
    for given, path in zip(paths, found, strict=True):
        if not Path(path).is_file():
            raise RecipeError(f"ragen.plugins names {given}, and there is no file {path}: correct the path.")
    known = list(filter(None, os.environ.get(FILES, "").split(os.pathsep)))
    if new := [path for path in found if path not in known]:
        os.environ[FILES] = os.pathsep.join([*known, *new])
    load_plugins()
    for path in found:
        if path in _failed:
            raise RecipeError(f"ragen.plugins names {path}, which cannot be imported: {_failed[path]}")
    return found


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    """The entry points of `GROUP`, found once in a process: this reads the metadata of every installed package."""
    return tuple(declarations(GROUP)[0])


def _load(name: str, load: Callable[[], Any]) -> None:
    if name in _loaded:
        return
    _loaded.add(name)  # before the import, so that a plugin that looks a name up is not loaded a second time
    try:
        load()
    except (Exception, SystemExit) as error:
        _failed[name] = " ".join(f"{type(error).__name__}: {error}".rstrip(".").split()) + "."
        print(f"ragen_verl: the plugin {name} could not be imported: {_failed[name]}", file=sys.stderr)


def _import_file(path: Path) -> None:
    name = f"ragen_verl_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError("its name does not end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _modules_of(home: str) -> Iterator[str]:
    yield from (one.name for one in pkgutil.iter_modules(importlib.import_module(home).__path__, f"{home}."))


def _module(thing: Any) -> str:
    return getattr(getattr(thing, "function", thing), "__module__", "")


def _origin(thing: Any) -> str:
    """Where a thing is defined, equal for two imports of one file."""
    function = getattr(thing, "function", thing)
    return f"{_module(thing)}.{getattr(function, '__qualname__', repr(thing))}"
