"""`joins_a_cluster`: whether a driver on this machine would join a running Ray cluster."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["CLUSTER", "joins_a_cluster"]

CLUSTER = Path("/tmp/ray/ray_current_cluster")
"""The file in which `ray start` stores the address for `ray.init()`, until `ray stop`."""


def joins_a_cluster() -> bool:
    """Whether `ray.init()` without an address would join a cluster."""
    return os.environ.get("RAY_ADDRESS", "local") != "local" or CLUSTER.exists()
