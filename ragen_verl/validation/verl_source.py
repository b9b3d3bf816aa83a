"""Facts about verl for the checks, read from its source files: an import takes many seconds and loads torch and Ray."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ragen_verl.errors import RecipeError
from ragen_verl.verl_files import folder, resolve, tree

__all__ = [
    "dataclass_fields",
    "engines",
    "estimators",
    "field_choices",
    "literal",
    "loggers",
    "optimizers",
    "policy_losses",
    "registered",
    "rollouts",
]


@cache
def dataclass_fields(target: str) -> dict[str, str]:
    """Name -> annotation of all fields of a dataclass of verl, including inherited ones; `Optional[int]` is `int`.

    Args:
        target: its full name, as in `_target_`.
    """
    full, node = resolve(target) or ("", None)
    if not isinstance(node, ast.ClassDef):
        return {}
    module, found = full.rpartition(".")[0], {}
    for base in node.bases:
        if isinstance(base, ast.Name):
            found |= dataclass_fields(f"{module}.{base.id}")
    own = (one for one in node.body if isinstance(one, ast.AnnAssign) and "ClassVar" not in _name(one))
    return found | {ast.unparse(one.target): _name(one).removeprefix("Optional[").removesuffix("]") for one in own}


@cache
def field_choices(target: str) -> dict[str, frozenset[str]]:
    """Field -> the texts that the dataclass's own check compares it with, `self.mode not in ["a", "b"]`; bases too.

    Args:
        target: the dataclass's full name, as in `_target_`.
    """
    full, node = resolve(target) or ("", None)
    if not isinstance(node, ast.ClassDef):
        return {}
    found: dict[str, frozenset[str]] = {}
    for base in node.bases:
        if isinstance(base, ast.Name):
            found |= field_choices(f"{full.rpartition('.')[0]}.{base.id}")
    check = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__post_init__"), None)
    lists = {}
    for one in ast.walk(check) if check else ():
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.List | ast.Tuple | ast.Set):
            lists[ast.unparse(one.targets[0])] = one.value
    for one in ast.walk(check) if check else ():
        if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.In | ast.NotIn):
            left, right = ast.unparse(one.left), one.comparators[0]
            values = getattr(lists.get(ast.unparse(right), right), "elts", ())
            texts = [item.value for item in values if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if left.startswith("self.") and left.count(".") == 1 and len(texts) == len(values) > 1:
                found[left.removeprefix("self.")] = frozenset(texts)
    return found


@cache
def engines() -> frozenset[str]:
    """The names under which verl registers training engines (`strategy`)."""
    files = (folder() / "workers" / "engine").glob("*/*_impl.py")
    calls = (one for path in files for one in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(one, ast.Call))
    given = [
        ast.literal_eval(word.value)
        for one in calls
        if _name(one.func) == "EngineRegistry.register"
        for word in one.keywords
        if word.arg == "backend"
    ]
    return frozenset(name for one in given for name in ([one] if isinstance(one, str) else one))


@cache
def rollouts() -> frozenset[str]:
    """The names of verl's generation engines (`rollout.name`)."""
    for one in ast.walk(tree("verl.workers.rollout.base")):
        if isinstance(one, ast.Assign) and _name(one.targets[0]) == "_ROLLOUT_REGISTRY":
            return frozenset(key[0] for key in ast.literal_eval(one.value))
    return frozenset()


@cache
def optimizers(module: str = "torch.optim") -> frozenset[str]:
    """The optimisers that a module imports by name, read from its source.

    Raises:
        RecipeError: there is no such module.
    """
    if not (source := _source(module)):
        raise RecipeError(f"optimizer_impl is {module!r}, which is not installed: use torch.optim, or install it.")
    found = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.ImportFrom)]
    return frozenset(alias.asname or alias.name for one in found for alias in one.names)


@cache
def literal(module: str, name: str) -> frozenset[str]:
    """The texts of `name = Literal[...]` in a module's source; none if it has no such line."""
    found = re.search(rf"^{name}\b.*?= Literal\[(.*?)\]", _source(module), re.DOTALL | re.MULTILINE)
    return frozenset(re.findall('"(.+?)"', found[1]) if found else ())


@cache
def estimators() -> frozenset[str]:
    """The names of verl's own advantage estimators."""
    (found,) = (
        one
        for one in tree("verl.trainer.ppo.core_algos").body
        if isinstance(one, ast.ClassDef) and one.name == "AdvantageEstimator"
    )
    values = (one.value for one in found.body if isinstance(one, ast.Assign))
    return frozenset(str(ast.literal_eval(one)) for one in values)


@cache
def policy_losses() -> frozenset[str]:
    """The names under which verl registers policy losses."""
    calls = (one for one in ast.walk(tree("verl.trainer.ppo.core_algos")) if isinstance(one, ast.Call))
    names = (one.args[0] for one in calls if _name(one.func) == "register_policy_loss")
    return frozenset(str(one.value) for one in names if isinstance(one, ast.Constant))


def registered(registry: str) -> frozenset[str]:
    """The names in a registry of verl's `core_algos`, including those of plugins; none if it has not been imported."""
    return frozenset(getattr(sys.modules.get("verl.trainer.ppo.core_algos"), registry, ()))


@cache
def loggers() -> tuple[str, ...]:
    """The names that verl accepts for `trainer.logger`."""
    for node in ast.walk(tree("verl.utils.tracking")):
        if isinstance(node, ast.Assign) and _name(node.targets[0]) == "supported_backend":
            return tuple(ast.literal_eval(node.value))
    return ()


def _source(module: str) -> str:
    """The text of a module of any package, which is not imported; empty if there is none."""
    first, *rest = module.split(".")
    spec = find_spec(first)
    path = Path(*(spec.submodule_search_locations or ())[:1], *rest) if spec else Path("/nowhere")
    return next(
        (one.read_text("utf-8") for one in (path / "__init__.py", path.with_suffix(".py")) if one.is_file()), ""
    )


def _name(node: ast.AST) -> str:
    return ast.unparse(node.annotation if isinstance(node, ast.AnnAssign) else node)
