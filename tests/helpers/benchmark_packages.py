"""Tests of benchmarks run where their packages are: `make test-bench` installs them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

__all__ = ["BENCHMARKS", "installed"]

BENCHMARKS = {"BFCL-v0", "Tau2-v0", "HumanEval-v0", "MiniWoB-v0", "Repair-v0"}
"""Environments that need a package of data or a sandbox: they have tests of their own."""


def installed(*modules: str) -> pytest.MarkDecorator:
    """A mark that skips where a module is missing, and says what installs it."""
    missing = [one for one in modules if find_spec(one) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed: run make test-bench")
