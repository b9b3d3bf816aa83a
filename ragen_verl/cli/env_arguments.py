"""Helpers that the commands on environments share."""

from __future__ import annotations

import inspect
from functools import partial

import typer
import yaml

from ragen_verl.declarations import declarations
from ragen_verl.env import Env
from ragen_verl.env.registry import GROUP
from ragen_verl.errors import RecipeError

__all__ = ["ID", "KWARGS", "parse_kwargs", "spelled", "summary", "variant"]

ID = typer.Argument(help="An id that `ragen-verl env list` shows; without a version: the highest.")
KWARGS = typer.Argument(None, metavar="[KEY=VALUE]...", help="Arguments, as in a recipe's kwargs.")


def parse_kwargs(pairs: list[str]) -> dict:
    """`["dim=[8, 8]", "slippery=false"]` as a dictionary, values in YAML.

    Raises:
        RecipeError: if a pair has no "=" or its value is no YAML.
    """
    kwargs = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise RecipeError(f"{pair!r} is no argument of an environment: write it as key=value.")
        try:
            kwargs[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise RecipeError(f"The value of {key!r} cannot be read: {value!r} is no YAML.") from None
    return kwargs


def summary(kind: type[Env]) -> str:
    """The first sentence of an environment's docstring; Markdown headings are skipped."""
    paragraphs = (inspect.getdoc(kind) or "").split("\n\n")
    text = next((paragraph for paragraph in paragraphs if not paragraph.startswith("#")), "no description")
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def variant(id: str) -> str:
    """The arguments that the declaration of `id` fixes, as "name=value, ...", empty for a plain class."""
    for point in declarations(GROUP)[0]:
        if point.name == id and isinstance(target := point.load(), partial):
            return spelled(target)
    return ""


def spelled(target: partial) -> str:
    """The arguments of a partial as "name=value, ..."."""
    return ", ".join(f"{name}={value!r}" for name, value in target.keywords.items())
