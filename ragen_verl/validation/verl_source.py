"""What the checks want to know of verl, read from its files: importing it takes many seconds, and torch and Ray."""

from __future__ import annotations

import ast
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ragen_verl.errors import RecipeError


def folder() -> Path:
    """The folder of the installed verl; finding it does not import it.

    Raises:
        RecipeError: verl is not installed.
    """
    spec = find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise RecipeError("verl is not installed beside ragen_verl: run `ragen-verl doctor`.")
    return Path(spec.submodule_search_locations[0])


def search_path(entry: str) -> str:
    """An entry of Hydra's search path without `pkg://verl`, for which Hydra would import verl."""
    head, _, rest = entry.partition("pkg://verl.")
    return entry if head or not rest else f"file://{folder().joinpath(*rest.split('.'))}"


@cache
def dataclass_keys(target: str) -> frozenset[str]:
    """Field names of a dataclass of verl, inherited ones included.

    Args:
        target: its full name, as in `_target_`.
    """
    found = _find(*target.rpartition(".")[::2])
    if found is None:
        return frozenset()
    module, node = found
    own = {
        one.target.id
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and "ClassVar" not in _name(one)
    }
    return frozenset(
        own.union(*(dataclass_keys(f"{module}.{_name(base)}") for base in node.bases if isinstance(base, ast.Name)))
    )


@cache
def policy_losses() -> frozenset[str]:
    """The names under which verl registers policy losses."""
    calls = (one for one in ast.walk(_tree("verl.trainer.ppo.core_algos")) if isinstance(one, ast.Call))
    names = (one.args[0] for one in calls if _name(one.func) == "register_policy_loss")
    return frozenset(str(one.value) for one in names if isinstance(one, ast.Constant))


def registered(registry: str) -> frozenset[str]:
    """Names in a registry of verl's `core_algos`, what plugins put there included; none where nobody imported it."""
    return frozenset(getattr(sys.modules.get("verl.trainer.ppo.core_algos"), registry, ()))


@cache
def loggers() -> tuple[str, ...]:
    """What verl takes for `trainer.logger`."""
    for node in ast.walk(_tree("verl.utils.tracking")):
        if isinstance(node, ast.Assign) and _name(node.targets[0]) == "supported_backend":
            return tuple(ast.literal_eval(node.value))
    return ()


def _find(module: str, name: str) -> tuple[str, ast.ClassDef] | None:
    """A class by the module that it can be imported from: where it is defined, and its definition."""
    tree = _tree(module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and any(alias.name in (name, "*") for alias in node.names):
            package = module.split(".") if _file(module).name == "__init__.py" else module.split(".")[:-1]
            parts = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*parts, *filter(None, [node.module])])
            if source.startswith("verl") and (found := _find(source, name)):
                return found
    return None


def _file(module: str) -> Path:
    path = folder().joinpath(*module.split(".")[1:])
    return init if (init := path / "__init__.py").exists() else path.with_suffix(".py")


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text("utf-8"))


def _name(node: ast.AST) -> str:
    return ast.unparse(node.annotation if isinstance(node, ast.AnnAssign) else node)
