"""What researchers vary, by name: registries that packages and files outside this repository add to.

A registry holds one kind of thing (advantage estimators, filter strategies, ...). A decorator puts a function in it:

    @estimator("my_estimator", needs_group=True)
    def my_estimator(batch, *, sharpness: float = 2.0): ...

Two ways make the module with the decorator known in every process of a training, both read when a registry is first
asked for a name:

- an installed package names it in its pyproject, `[project.entry-points."ragen_verl.plugins"]`, `my = "my_package"`;
- a recipe names a file, `ragen.plugins: [my_estimator.py]`, which the environment variable `RAGEN_VERL_PLUGINS` carries
  to the workers.

The options of a function are its keyword-only parameters: their defaults are the recipe's defaults, and their
annotations are what a recipe's values are checked against: int, float, bool, str, `tuple[float, ...]`,
`Literal["a", "b"]`, and `Annotated[float, Accepts(test, words)]` for a number within bounds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from ragen_verl.errors import RecipeError, nearest

GROUP = "ragen_verl.plugins"
"""The entry-point group."""

FILES = "RAGEN_VERL_PLUGINS"
"""The environment variable with the paths of plugin files, separated like those of `PATH`."""

T = TypeVar("T")


@dataclass(frozen=True)
class Accepts:
    """What an option or a key takes beyond its type: a test on the converted value, and the words for it."""

    test: Callable[[Any], bool]
    words: str


_loaded: set[str] = set()
_failed: dict[str, str] = {}  # plugin -> why it could not be imported
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


class Registry(Generic[T], Mapping[str, T]):
    """Things of one kind by name; whatever plugins add is there from the first question on.

    Args:
        kind: what it holds, as in an error message: "advantage estimator".
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._things: dict[str, T] = {}

    def add(self, name: str, thing: T) -> T:
        """Put `thing` under `name`.

        Raises:
            RecipeError: another thing has the name. The same module may be imported twice.
        """
        known = self._things.get(name)
        if known is not None and _origin(known) != _origin(thing):
            raise RecipeError(f"There is an {self.kind} {name!r} already ({_origin(known)}): choose another name.")
        self._things[name] = thing
        return thing

    def find(self, name: str, key: str) -> T:
        """The thing of this name.

        Args:
            name: as in the recipe.
            key: the recipe's key, for the message.

        Raises:
            RecipeError: there is none; the message names the nearest, and plugins that could not be imported.
        """
        load_plugins()
        if name in self._things:
            return self._things[name]
        broken = "".join(f" The plugin {plugin} could not be imported: {why}" for plugin, why in _failed.items())
        raise RecipeError(f"{key} is {name!r}, which is no {self.kind}: {nearest(name, self._things)}{broken}")

    def __getitem__(self, name: str) -> T:
        load_plugins()
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(dict(self._things))

    def __len__(self) -> int:
        load_plugins()
        return len(self._things)


def options_of(function: Callable) -> dict[str, inspect.Parameter]:
    """The options of a registered function, its keyword-only parameters, in their order; annotations resolved."""
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    return {
        one.name: one.replace(annotation=hints.get(one.name, Any)) for one in parameters if one.kind is one.KEYWORD_ONLY
    }


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
    given = {key: value for key, value in given.items() if value is not None}
    checked = {}
    for key, value in given.items():
        if key not in known:
            has = f"it reads {', '.join(known)}" if known else "it has no options"
            raise RecipeError(f"{path}.{key} is {value!r} but {owner} does not read it: {has}.")
        or_null = "" if known[key].default is inspect.Parameter.empty else " or null"
        checked[key] = _typed(value, known[key].annotation, f"{path}.{key}", f"{or_null} ({owner})")
    for key, one in known.items():
        if one.default is one.empty and key not in checked:
            raise RecipeError(f"{path}.{key} is missing: {owner} needs it.")
    return checked


def load_plugins() -> None:
    """Import every plugin that this process has not imported yet; one that fails is said on stderr and remembered."""
    for point in entry_points(group=GROUP):
        _load(f"{point.name} ({point.value})", point.load)
    for path in filter(None, os.environ.get(FILES, "").split(os.pathsep)):
        _load(path, lambda path=path: _import_file(Path(path)))


def plugin_files(paths: list[str], folder: Path | None = None) -> str:
    """`FILES` for a recipe's `ragen.plugins`: absolute paths, relative ones from `folder`, else from where we are.

    Raises:
        RecipeError: a file is not there.
    """
    found = [(folder or Path.cwd()) / Path(one).expanduser() for one in paths]
    for given, path in zip(paths, found, strict=True):
        if not path.is_file():
            raise RecipeError(f"ragen.plugins names {given}, and there is no file {path}: correct the path.")
    return os.pathsep.join(str(path.resolve()) for path in found)


def _load(name: str, load: Callable[[], Any]) -> None:
    if name in _loaded:
        return
    _loaded.add(name)  # first, so that a plugin that asks a registry for a name does not come back here
    try:
        load()
    except Exception as error:
        _failed[name] = f"{type(error).__name__}: {error}."
        print(f"ragen_verl: the plugin {name} could not be imported: {_failed[name]}", file=sys.stderr)


def _import_file(path: Path) -> None:
    name = f"ragen_verl_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _typed(value: Any, annotation: Any, path: str, end: str) -> Any:
    """`value` converted and checked; an annotation that is none of those in the head of this file takes anything."""
    accepts = next((one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, Accepts)), None)
    kind = annotation.__origin__ if typing.get_origin(annotation) is Annotated else annotation
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    words = accepts.words if accepts else _WORDS.get(kind, "a list of numbers")
    if origin is tuple and isinstance(value, list | tuple):
        value = tuple(_typed(one, arguments[0], f"{path}[{i}]", end) for i, one in enumerate(value))
    elif kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    right = not (origin is tuple or kind in _WORDS) or isinstance(value, origin or kind)
    if isinstance(value, bool) and kind in _WORDS and kind is not bool:
        right = False
    if origin is Literal:
        right, words = value in arguments, "one of " + ", ".join(map(str, arguments))
    if not right or (accepts and not accepts.test(value)):
        raise RecipeError(f"{path} is {value!r} but has to be {words}{end}.")
    return value


def _origin(thing: Any) -> str:
    """Where a thing is defined, equal for two imports of one file."""
    function = getattr(thing, "function", thing)
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(thing))}"
