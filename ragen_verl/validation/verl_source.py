"""Facts about verl for the checks, read from its source files: an import takes many seconds and loads torch and Ray."""

from __future__ import annotations

import ast
import sys
from functools import cache

from ragen_verl.verl_files import folder, resolve, tree

__all__ = ["dataclass_keys", "loggers", "policy_losses", "registered", "search_path"]


def search_path(entry: str) -> str:
    """An entry of Hydra's search path, with `pkg://verl...` as a folder, because Hydra would import verl for it."""
    head, _, rest = entry.partition("pkg://verl.")
    return entry if head or not rest else f"file://{folder().joinpath(*rest.split('.'))}"


@cache
def dataclass_keys(target: str) -> frozenset[str]:
    """The names of all fields of a dataclass of verl, including inherited ones.

    Args:
        target: its full name, as in `_target_`.
    """
    found = resolve(target)
    full, node = found or ("", None)
    if not isinstance(node, ast.ClassDef):
        return frozenset()
    module = full.rpartition(".")[0]
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
    calls = (one for one in ast.walk(tree("verl.trainer.ppo.core_algos")) if isinstance(one, ast.Call))
    names = (one.args[0] for one in calls if _name(one.func) == "register_policy_loss")
    return frozenset(str(one.value) for one in names if isinstance(one, ast.Constant))


def registered(registry: str) -> frozenset[str]:
    """The names in a registry of verl's `core_algos`, also those of plugins; none if it has not been imported."""
    return frozenset(getattr(sys.modules.get("verl.trainer.ppo.core_algos"), registry, ()))


@cache
def loggers() -> tuple[str, ...]:
    """The names that verl accepts for `trainer.logger`."""
    for node in ast.walk(tree("verl.utils.tracking")):
        if isinstance(node, ast.Assign) and _name(node.targets[0]) == "supported_backend":
            return tuple(ast.literal_eval(node.value))
    return ()


def _name(node: ast.AST) -> str:
    return ast.unparse(node.annotation if isinstance(node, ast.AnnAssign) else node)
