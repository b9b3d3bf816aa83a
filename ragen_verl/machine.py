"""Facts about this machine and installation that are cheap to get: versions, memory, GPUs."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from pathlib import Path

__all__ = ["memory", "nvidia_devices", "nvidia_smi", "version"]

_DEV = Path("/dev")
_DRIVER = Path("/proc/driver/nvidia")


def version(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def memory() -> int:
    """Bytes of memory, or the container's limit if it is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return min(total, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such control group, or "max"
            continue
    return total


def nvidia_smi() -> list[str]:
    """Names of the NVIDIA GPUs that the driver sees, usable by torch or not.

    In a container without `nvidia-smi` they are read where the kernel's driver lists them.
    """
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return _driver_lists() if nvidia_devices() else []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def nvidia_devices() -> list[str]:
    """Names of the files of NVIDIA GPUs that this process may open; asking costs nothing."""
    return sorted(one.name for one in _DEV.glob("nvidia[0-9]*"))


def _driver_lists() -> list[str]:
    texts = [one.read_text() for one in sorted(_DRIVER.glob("gpus/*/information"))]
    return [line.partition(":")[2].strip() for text in texts for line in text.splitlines() if line.startswith("Model:")]
