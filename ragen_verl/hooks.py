"""Hooks on other packages: what this package changes in a module once a process has imported it.

verl and vLLM load this package in each of their processes, even in those that have nothing to do with it. There a hook
that does not fit the installed version must not end anything: it is reported on stderr and left out. A ragen_verl
run that needs it fails later with verl's own message, below that report, and `doctor` names it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import wrapt

__all__ = ["FAILED", "HOOKED", "after_import"]

HOOKED: list[str] = []
"""The modules that have a hook in this process, imported or not."""

FAILED: dict[str, str] = {}
"""Module -> the traceback of its hook, for those that failed in this process."""


def after_import(name: str, hook: Callable[[ModuleType], Any]) -> None:
    """Call `hook` with the module `name` as soon as it has been imported, or now if it has been; it may fail."""

    def guarded(module: ModuleType) -> None:
        try:
            hook(module)
        except Exception as error:
            FAILED[name] = traceback.format_exc()
            what = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"ragen_verl: {name} stays as it is; `ragen-verl doctor` says why ({what})", file=sys.stderr)

    HOOKED.append(name)
    wrapt.register_post_import_hook(guarded, name)
