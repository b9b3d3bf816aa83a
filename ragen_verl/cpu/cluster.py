"""`joins_a_cluster`: whether a driver on this machine would join a running Ray cluster."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["joins_a_cluster"]


def joins_a_cluster() -> bool:
    """Whether `ray.init()` without an address would join a cluster."""
    return os.environ.get("RAY_ADDRESS", "local") != "local" or _address_file().exists()


def _address_file() -> Path:
    """The file in which `ray start` stores the address, until `ray stop` (ray/_common/utils.py:327)."""
    folder = os.environ.get("RAY_TMPDIR", os.environ.get("TMPDIR", "/tmp"))
    return Path(folder) / "ray" / "ray_current_cluster"
