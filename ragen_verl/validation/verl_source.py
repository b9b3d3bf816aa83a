"""Facts about verl for the checks, read from its source files: an import takes many seconds and loads torch and Ray."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ragen_verl.errors import RecipeError
from ragen_verl.verl_files import folder, resolve

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
    """Field -> annotation of the dataclass that a `_target_` names, with inherited ones; `Optional[int]` is `int`."""
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
    """Field -> the texts that such a dataclass's own check compares it with, `self.mode not in ["a", "b"]`."""
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
    texts = (one.read_text("utf-8") for one in (folder() / "workers" / "engine").glob("*/*_impl.py"))
    calls = "".join(one for text in texts for one in re.findall(r"EngineRegistry\.register\((.*?)\)", text, re.DOTALL))
    return frozenset(re.findall('"(.+?)"', "".join(re.findall(r"backend=(\[.*?\]|\".*?\")", calls, re.DOTALL))))


@cache
def rollouts() -> frozenset[str]:
    """The names of verl's generation engines (`rollout.name`)."""
    found = re.search(
        r"^_ROLLOUT_REGISTRY = (\{.*?^\})", _source("verl.workers.rollout.base"), re.DOTALL | re.MULTILINE
    )
    return frozenset(key[0] for key in ast.literal_eval(found[1])) if found else frozenset()


@cache
def optimizers(module: str = "torch.optim") -> frozenset[str]:
    """The optimisers that a module imports by name, read from its source; a RecipeError if there is no such module."""
    if not (source := _source(module)):
        raise RecipeError(f"optimizer_impl is {module!r}, which is not installed: use torch.optim, or install it.")
    found = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.ImportFrom)]
    return frozenset(alias.asname or alias.name for one in found for alias in one.names)


@cache
def literal(module: str, name: str) -> frozenset[str]:
    """The texts of `name = Literal[...]` in a module's source; none if it has no such line."""
    found = re.search(rf"(?ms)^{name}\b.*?= Literal\[(.*?)\]", _source(module))
    return frozenset(re.findall('"(.+?)"', found[1]) if found else ())


@cache
def estimators() -> frozenset[str]:
    """The names of verl's own advantage estimators."""
    found = re.search(r"(?s)\nclass AdvantageEstimator\(.*?\n\n\n", _source("verl.trainer.ppo.core_algos"))
    return frozenset(re.findall('= "(.+?)"', found[0]) if found else ())


@cache
def policy_losses() -> frozenset[str]:
    """The names under which verl registers policy losses."""
    return frozenset(re.findall(r'register_policy_loss\("(.+?)"\)', _source("verl.trainer.ppo.core_algos")))


def registered(registry: str) -> frozenset[str]:
    """The names in a registry of verl's `core_algos`, including those of plugins; none if it has not been imported."""
    return frozenset(getattr(sys.modules.get("verl.trainer.ppo.core_algos"), registry, ()))


@cache
def loggers() -> tuple[str, ...]:
    """The names that verl accepts for `trainer.logger`."""
    found = re.search(r"(?s)supported_backend = (\[.*?\])", _source("verl.utils.tracking"))
    return tuple(ast.literal_eval(found[1])) if found else ()


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
