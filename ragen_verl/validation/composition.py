"""Compose a recipe as verl's main does, in any process and without importing verl; errors become one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import yaml
from hydra import compose as hydra_compose
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core import config_store
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ragen_verl.errors import RecipeError, nearest
from ragen_verl.names import is_file
from ragen_verl.resolvers import open_options, register_resolvers
from ragen_verl.verl_files import folder

__all__ = ["compose", "quoted", "sft_defaults", "verl_defaults"]

_RECIPES = "ragen_verl.recipes"
_VERL = "file://{}/trainer/config"


def compose(recipe: str, overrides: Sequence[str] = ()) -> DictConfig:
    """A recipe with overrides, as verl's main composes it; interpolations are not resolved yet.

    Args:
        recipe: a name in the package, or the path of a YAML file.
        overrides: Hydra overrides: key=value, +new.key=value, ~key.

    Raises:
        RecipeError: an override or a file cannot be read, or names something that does not exist.
    """
    register_resolvers()
    open_options(config_store)
    parsed = [_parse(one) for one in overrides]
    name, beside = recipe, None
    if is_file(recipe):
        name, beside = Path(recipe).stem, Path(recipe).resolve().parent
        _check_name(name)
        _check_file(Path(recipe))
    with _hydra(f"pkg://{_RECIPES}", beside):
        try:
            return hydra_compose(name, overrides=list(overrides))
        except yaml.MarkedYAMLError as error:
            raise RecipeError(_unreadable(error)) from error
        except MissingConfigException as error:
            raise RecipeError(_missing(error)) from error
        except (HydraException, OmegaConfBaseException, ValueError) as error:  # ValueError: a list's index is a word
            for one in parsed:
                _check_key(one, recipe, lambda: hydra_compose(name, return_hydra_config=True))
            raise RecipeError(f"{recipe} cannot be composed: {_first_line(error)}") from error


def verl_defaults(model_engine: str) -> DictConfig:
    """verl's own composed defaults for a model engine; the application may be using Hydra at the same time."""
    with _hydra(_VERL.format(folder())):
        return hydra_compose("ppo_trainer", overrides=[f"model_engine={model_engine}"])


def sft_defaults() -> DictConfig:
    """verl's own composed defaults for supervised training."""
    with _hydra(_VERL.format(folder())):
        return hydra_compose("sft_trainer_engine")


def quoted(text: str) -> str:
    """A value in the quotes that Hydra needs to read it back unchanged."""
    if re.fullmatch(r"/[A-Za-z0-9_./-]*", text):
        return text
    text = re.sub(r"(\\*)'", r"\1\1\\'", text)  # of all backslashes, only those before a quote are doubled
    return "'" + re.sub(r"\\+$", lambda end: end[0] * 2, text) + "'"


@contextmanager
def _hydra(source: str, beside: Path | None = None) -> Iterator[None]:
    """A context in which Hydra reads files from `source` and `beside`; Hydra's earlier state is restored after it.

    Hydra makes its plugins anew then and forgets those that were registered, such as `ragen_verl.resolvers.find_verl`.
    """
    state, plugins = Singleton.get_state(), Plugins.instance()
    GlobalHydra.instance().clear()
    try:
        path = create_config_search_path(source)
        # as a folder: `pkg://verl` would import verl
        path.prepend("ragen-verl", _VERL.format(folder()), anchor="schema")
        if beside:
            path.prepend("command-line", f"file://{beside}", anchor="schema")
        Hydra.create_main_hydra2("ragen_verl", path)
        yield
    finally:
        Singleton.set_state(state)
        Singleton._instances[Plugins] = plugins


def _parse(override: str) -> Override:
    try:
        one = OverridesParser.create().parse_override(override)
    except HydraException as error:
        reason = _first_line(error)
        raise RecipeError(f"The override {override!r} cannot be read: {reason}") from error
    if one.is_sweep_override():
        raise RecipeError(
            f"The override {override!r} names several values, and one run takes one: write a sweep's file and run "
            "`ragen-verl sweep FILE`, or put a list into brackets."
        )
    return one


def _check_name(name: str) -> None:
    """Refuse a file with the name of a recipe in the package: Hydra looks there first and would never read the file."""
    if (Path(str(files(_RECIPES))) / f"{name}.yaml").exists():
        raise RecipeError(f"{name}.yaml is the name of a file in ragen_verl's recipes as well: call yours differently.")


def _check_file(path: Path) -> None:
    """Refuse a file that is no block of keys, which Hydra would say less clearly."""
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except yaml.MarkedYAMLError as error:
        raise RecipeError(_unreadable(error, path)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise RecipeError(f"{path} holds no keys: a recipe is a YAML file with a defaults list and blocks of keys.")


def _unreadable(error: yaml.MarkedYAMLError, path: Path | None = None) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
    return f"{path or (mark.name if mark else 'A file')} is no YAML, {where}: {error.problem or error.context}."


def _missing(error: MissingConfigException) -> str:
    """The message for an option or a file that does not exist; it names the options that Hydra knows."""
    wanted = str(error.missing_cfg_file)
    group, _, option = wanted.rpartition("/")
    if error.options:
        return f"There is no {group}={option}: {nearest(option, error.options)}"
    return (
        f"A recipe's defaults list names {wanted}, and there is no such file in ragen_verl's recipes or beside yours."
    )


def _check_key(override: Override, recipe: str, plain: Callable[[], DictConfig]) -> None:
    """Refuse an override of a key that the recipe does not have; `plain` composes the recipe without overrides."""
    key = override.get_key_element().lstrip("~+")
    if override.is_add() or override.is_force_add() or override.is_hydra_override():
        return
    config = plain()
    keys = set(_keys(OmegaConf.to_container(config, resolve=False)))
    parts = {one for one in config.hydra.runtime.choices if "@" not in one and "/" not in one}
    if key in keys or key in parts:
        return
    ours = {path.name for path in Path(str(files(_RECIPES))).iterdir() if path.is_dir()}
    if key in ours:
        has = ", ".join(sorted(ours & parts)) or "none"
        raise RecipeError(f"{recipe} has no part {key} that another could take the place of; its parts: {has}.")
    block = key
    while block and block not in keys:
        block = block.rpartition(".")[0]
    near = nearest(key, keys | parts)
    if near.startswith("known"):
        start = f"{block}." if block else ""
        near = nearest(key, {one for one in keys if one.startswith(start) and "." not in one.removeprefix(start)})
    raise RecipeError(f"{key} is not a key of {recipe}: {near}")


def _keys(block: dict | list, path: str = "") -> Iterator[str]:
    for key, value in block.items() if isinstance(block, dict) else enumerate(block):
        where = f"{path}{key}"
        if where == "hydra":
            continue
        yield where
        if isinstance(value, dict | list):
            yield from _keys(value, f"{where}.")


def _first_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return text if text.endswith((".", "?")) else f"{text}."
