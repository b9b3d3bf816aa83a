"""`ragen-verl recipes`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from ragen_verl.cli.console import console
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.names import SWEEPS, is_file

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["PARTS", "check", "composed", "find", "named", "recipes", "summary"]

#: Folders with pieces that recipes are put together from; a piece names no model and cannot be trained. The files
#: beside the folders are pieces too.
PARTS = ("algorithm", "env", "hardware", "mode", "nano_model")


def find(kind: str = "recipe") -> Iterator[tuple[str, str]]:
    """Name and first comment of every file of a kind in the package: "recipe", "part" or "sweep"."""
    root = Path(str(files("ragen_verl.recipes")))
    for path in sorted([*root.glob("*.yaml"), *root.glob("*/*.yaml")]):
        name = path.relative_to(root).with_suffix("").as_posix()
        folder = path.parent.name
        its = "sweep" if folder in SWEEPS else "part" if folder in PARTS or "/" not in name else "recipe"
        if its == kind:
            yield name, summary(path.read_text("utf-8"))


def named(incomplete: str) -> list[str]:
    """The recipes whose names begin like that, for the completion of a shell."""
    return [name for name, _ in find() if name.startswith(incomplete)]


def check(recipe: str) -> None:
    """Raise RecipeError, naming the nearest, unless `recipe` is one of the package's recipes or a file."""
    if is_file(recipe):
        if not Path(recipe).is_file():
            raise RecipeError(f"There is no file {recipe}; `ragen-verl recipes` lists the package's recipes.")
        return
    if recipe in (names := named("")):
        return
    if recipe in [name for name, _ in find("part")]:
        raise RecipeError(f"{recipe!r} is a part of recipes: train one of {', '.join(names)}.")
    if recipe in [name for name, _ in find("sweep")]:
        raise RecipeError(f"{recipe!r} is a sweep of several runs: run `ragen-verl sweep {recipe}`.")
    raise RecipeError(f"There is no recipe {recipe!r} (`ragen-verl recipes` lists them): {nearest(recipe, names)}")


def composed(recipe: str, overrides: list[str]) -> DictConfig:
    """A recipe of that name or file with overrides.

    Raises:
        RecipeError: there is none, or it cannot be composed.
    """
    from ragen_verl.validation.composition import compose

    check(recipe)
    return compose(recipe, overrides)


def summary(text: str) -> str:
    """The first sentence of the comment at a YAML file's head; Hydra's `# @package` and command lines are skipped."""
    words: list[str] = []
    for line in text.splitlines():
        if line.startswith(("# @", "# ragen-verl ", "# python ")) or (not line.strip() and not words):
            continue
        if not line.startswith("#"):
            break
        words.append(line.lstrip("# ").rstrip())
        if words[-1].endswith("."):
            break
    return " ".join(words).partition(". ")[0].rstrip(".")


def recipes(
    parts: bool = typer.Option(False, "--parts", help="List the pieces that recipes are made of."),
    tables: bool = typer.Option(False, "--tables", help="List the sweeps that rerun what papers report."),
) -> None:
    """List the recipes of the package, which `ragen-verl train` takes."""
    kind = "part" if parts else "sweep" if tables else "recipe"
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(kind, no_wrap=True)
    table.add_column("what it is")
    for name, text in find(kind):
        table.add_row(name, text)
    console().print(table)
