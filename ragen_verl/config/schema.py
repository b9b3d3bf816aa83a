"""Make typed blocks from plain YAML data: one dataclass for each block. A refusal is one sentence with the full key."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from omegaconf.errors import OmegaConfBaseException

from ragen_verl.errors import RecipeError, nearest
from ragen_verl.values import POSITIVE as ABOVE_ZERO
from ragen_verl.values import SHARE, Accepts, checked

__all__ = ["FILLED", "FINITE", "FRACTION", "PENALTY", "POSITIVE", "REST", "at_least", "one_of", "parse", "unresolved"]


def at_least(low: float) -> dict[str, Accepts]:
    """Metadata of a field that takes numbers of `low` or more."""
    return {"accepts": Accepts(lambda value: value >= low, f"a number of {low} or more")}


def one_of(*choices: str) -> dict[str, Accepts]:
    """Metadata of a field that takes one of these words."""
    return {"accepts": Accepts(lambda value: value in choices, "one of " + ", ".join(choices))}


POSITIVE = {"accepts": ABOVE_ZERO}
PENALTY = {"accepts": Accepts(lambda value: value <= 0, "a number of 0 or less")}
FRACTION = {"accepts": SHARE}
FINITE = {"accepts": Accepts(math.isfinite, "a finite number")}
REST = {"rest": True}
"""Metadata of a field of type dict that takes all keys of the block that are no fields: the options of a plugin."""
FILLED = {"accepts": Accepts(lambda value: bool(value), "a value that is not empty")}


def unresolved(error: OmegaConfBaseException) -> str:
    """One sentence for a value that OmegaConf cannot produce: a missing one, or an interpolation that fails."""
    reason = str(error).splitlines()[0].rpartition("raised while resolving interpolation: ")[2].rstrip(".")
    key = error.full_key or error.key
    return f"{key} has no value: {reason}." if key else f"The recipe cannot be resolved: {reason}."


def parse(kind: type, data: Any, path: str) -> Any:
    """Make a dataclass of type `kind` from plain dicts and lists; `path` is the key's full name in the recipe.

    Raises:
        RecipeError: an unknown or missing key, a wrong type, or a value that the field does not accept.
    """
    if not isinstance(data, Mapping):
        raise RecipeError(f"{path} is {data!r} but has to be a block of keys ({', '.join(_names(kind))}).")
    rest = next((one.name for one in fields(kind) if one.metadata.get("rest")), None)
    extra = {key: value for key, value in data.items() if key not in _names(kind)}
    for key in () if rest else extra:
        raise RecipeError(f"{path}.{key} is not a key of {path}: {nearest(key, _names(kind))}")
    hints = typing.get_type_hints(kind)
    values = {}
    for one in fields(kind):
        where = f"{path}.{one.name}"
        if one.name == rest:
            values[one.name] = extra
        elif one.name in data:
            values[one.name] = checked(hints[one.name], data[one.name], where, one.metadata.get("accepts"), parse)
        elif one.default is MISSING and one.default_factory is MISSING:
            raise RecipeError(f"{where} is missing from the recipe.")
    return kind(**values)


def _names(kind: type) -> list[str]:
    return [one.name for one in fields(kind) if not one.metadata.get("rest")]
