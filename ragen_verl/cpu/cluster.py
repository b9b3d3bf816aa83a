"""Whether a driver on this machine joins a Ray cluster that runs already."""

from __future__ import annotations

import os
from pathlib import Path

CLUSTER = Path("/tmp/ray/ray_current_cluster")
"""Where `ray start` leaves the address for `ray.init()`, until `ray stop`."""


def joins_a_cluster() -> bool:
    """What `ray.init()` without an address would do."""
    return os.environ.get("RAY_ADDRESS", "local") != "local" or CLUSTER.exists()
