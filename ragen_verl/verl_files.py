"""Find, parse and search verl's source files without importing verl: that takes seconds and loads torch and Ray."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ragen_verl.errors import RecipeError

__all__ = ["Definition", "file", "folder", "imported", "resolve", "tree"]

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def folder() -> Path:
    """The folder of the installed verl; finding it does not import it.

    Raises:
        RecipeError: verl is not installed.
    """
    spec = find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise RecipeError("verl is not installed beside ragen_verl: run `ragen-verl doctor`.")
    return Path(spec.submodule_search_locations[0])


@cache
def file(module: str) -> Path | None:
    """The file of a module by its full name, None where there is none."""
    path = folder().joinpath(*module.split(".")[1:])
    return next((one for one in (path / "__init__.py", path.with_suffix(".py")) if one.is_file()), None)


@cache
def tree(module: str) -> ast.Module:
    """A module's syntax tree; an empty one where there is no such module."""
    path = file(module)
    return ast.parse(path.read_text("utf-8") if path else "")


def imported(source: ast.Module, module: str = "") -> dict[str, str]:
    """Local name -> full name of what a module imports from verl by name.

    Args:
        source: the module's tree.
        module: its full name, if it is one of verl's, whose imports may be relative.
    """
    return {
        alias.asname or alias.name: f"{origin}.{alias.name}"
        for origin, node in _imports(source, module)
        for alias in node.names
    }


@cache
def resolve(name: str) -> tuple[str, Definition] | None:
    """Where the class, function or method of a full name is defined, and its definition; None if verl has none.

    It follows imports inside verl, and finds a method in the base class that has it.
    """
    parts = name.split(".")
    cut = next((n for n in range(len(parts) - 1, 0, -1) if file(".".join(parts[:n]))), 0)
    if not cut or parts[0] != "verl":
        return None
    module, first, rest = ".".join(parts[:cut]), parts[cut], parts[cut + 1 :]
    node = _named(tree(module), first)
    if node is None:
        origins = [imported(tree(module), module).get(first, "")]
        origins += [f"{origin}.{first}" for origin, one in _imports(tree(module), module) if one.names[0].name == "*"]
        found = (resolve(".".join([origin, *rest])) for origin in origins if origin)
        return next(filter(None, found), None)
    for number, part in enumerate(rest):
        inner = _named(node, part)
        if inner is None:
            bases = [ast.unparse(base) for base in getattr(node, "bases", ())]
            above = (resolve(".".join([module, base, *rest[number:]])) for base in bases)
            return next(filter(None, above), None)
        node = inner
    return ".".join([module, first, *rest]), node


@cache
def _imports(source: ast.Module, module: str) -> list[tuple[str, ast.ImportFrom]]:
    """The imports from modules of verl: the module's full name, and the statement."""
    found = []
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom):
            own = file(module)
            package = module.split(".") if own and own.name == "__init__.py" else module.split(".")[:-1]
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *filter(None, [node.module])])
            if origin.split(".")[0] == "verl":
                found.append((origin, node))
    return found


def _named(node: ast.AST, name: str) -> Definition | None:
    inside = (one for one in getattr(node, "body", ()) if isinstance(one, Definition))
    return next((one for one in inside if one.name == name), None)
