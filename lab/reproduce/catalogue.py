"""The package's sweeps that have a protocol, found by their names or by the figures and tables that they test."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ragen_lab.reproduce.experiment_protocol import SCALES
from ragen_lab.reproduce.sweep import Sweep, packaged

from ragen_verl.errors import RecipeError, nearest

__all__ = ["experiments", "find"]


@cache
def experiments() -> dict[str, Sweep]:
    """Name -> sweep with a protocol; those at the nano scale come first."""
    found = [Sweep.read(path) for path in packaged().values()]
    found = [one for one in found if one.protocol]
    return {one.name: one for one in sorted(found, key=_place)}


def _place(one: Sweep) -> tuple:
    """A sort key: first the scale, then the name, in which numbers are compared as numbers."""
    parts = re.split(r"(\d+)", one.name)
    return SCALES.index(one.protocol.scale), [int(part) if part.isdigit() else part for part in parts]


def find(item: str, scale: str | None = None) -> list[Sweep]:
    """The experiments for an item.

    Args:
        item: the name of an experiment, such as `e5_bandit_risk` or `e5`; or of a figure or table that experiments
            cover, such as `ragen_figure9`; or the path of a sweep's file with a protocol.
        scale: `nano` or `paper`. None takes the experiment with that name or, if there is none, all that cover it.

    Raises:
        RecipeError: there is no such experiment, or none at that scale.
    """
    if item.endswith((".yaml", ".yml")):
        sweep = Sweep.read(Path(item))
        if not sweep.protocol:
            raise RecipeError(f"{item} has no protocol, so nothing decides: run `ragen-verl sweep {item}`.")
        return [sweep]
    if scale not in (None, *SCALES):
        raise RecipeError(f"There is no scale {scale!r}: {nearest(scale, SCALES)}")
    named = [one for name, one in experiments().items() if item in (name, name.partition("_")[0])]
    covering = [one for one in experiments().values() if item in one.protocol.covers]
    found = [one for one in [*named, *covering] if scale in (None, one.protocol.scale)]
    if not (named or covering):
        known = [*experiments(), *(name for one in experiments().values() for name in one.protocol.covers)]
        raise RecipeError(f"There is no item {item!r}: {nearest(item, known)} `ragen-verl reproduce --list` shows all.")
    if not found:
        raise RecipeError(f"{item} has no experiment at the scale {scale}: leave --scale out.")
    return found if scale else named or found
