"""Applying the patches of the table in a process."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ragen_verl.errors import RecipeError, nearest
from ragen_verl.hooks import after_import
from ragen_verl.patches.table import PATCHES, Patch
from ragen_verl.switch import WITHOUT, left_out

__all__ = ["apply_patches", "check_left_out"]


def apply_patches(loader: str, cpu: bool = False) -> list[str]:
    """Apply what the table has for this process, each patch once its module is imported; return the names.

    Args:
        loader: verl or vllm, whichever asks.
        cpu: whether the process has no accelerator.
    """
    found = [one for one in PATCHES if one.loader == loader and cpu >= one.cpu and one.name not in left_out()]
    for one in found:
        if one.module:
            after_import(one.module, lambda module, one=one: _function(one)(module))
        else:
            _function(one)()
    return [one.name for one in found]


def check_left_out() -> None:
    """Refuse names of patches that do not exist.

    Raises:
        RecipeError: with the nearest name.
    """
    known = [one.name for one in PATCHES]
    for name in sorted(left_out() - set(known)):
        raise RecipeError(f"{WITHOUT} names {name!r}, which is no patch: {nearest(name, known)}")


def _function(patch: Patch) -> Any:
    module, _, name = patch.function.partition(":")
    return getattr(import_module(module), name)
