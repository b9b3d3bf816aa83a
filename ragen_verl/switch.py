"""The switch: whether this process belongs to a run with ragen_verl. Elsewhere verl and vLLM stay as they are.

verl and vLLM load this package in all of their processes, since it is installed. It does something there only if the
process asks for it: the variable `SWITCH` is 1, or the command names a recipe of this package. A process that has asked
sets the variable, and its children and Ray's workers have it from there.
"""

from __future__ import annotations

import os
import sys

from ragen_verl.errors import RecipeError

__all__ = ["SWITCH", "WITHOUT", "is_on", "left_out", "turn_on"]

SWITCH = "RAGEN_VERL"
"""The environment variable: 1 turns the package on in a process, 0 keeps it out; without it the command decides."""

WITHOUT = "RAGEN_VERL_WITHOUT"
"""The environment variable with names of patches (`ragen_verl.patches.PATCHES`), with commas, that are left out."""

_RECIPES = "pkg://ragen_verl."


def is_on() -> bool:
    """Whether this process belongs to a run with ragen_verl.

    verl's main runs a recipe of this package if its command names the package's folder of recipes, as `--config-path`
    or in Hydra's search path. Any other recipe with a `ragen` block turns the switch on once it is composed.
    """
    chosen = os.environ.get(SWITCH, "")
    return chosen == "1" if chosen in ("0", "1") else any(_RECIPES in one for one in sys.argv)


def turn_on() -> None:
    """Turn the package on for the processes that this one starts.

    Raises:
        RecipeError: the user keeps it out.
    """
    if os.environ.get(SWITCH) == "0":
        raise RecipeError(f"{SWITCH}=0 keeps ragen_verl out of this process, and the recipe needs it: unset {SWITCH}.")
    os.environ[SWITCH] = "1"


def left_out() -> frozenset[str]:
    """The names of patches that the user leaves out."""
    return frozenset(filter(None, (one.strip() for one in os.environ.get(WITHOUT, "").split(","))))
