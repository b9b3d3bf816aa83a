"""A disk of a megabyte, where this process may mount one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    """A file system of this size in a folder; the test is skipped where mounting is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip("this process may not mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, left: int = 0) -> Path:
    """A file that takes all room of the disk but these bytes."""
    file = folder / "filling"
    try:
        with file.open("ab", buffering=0) as out:
            while True:
                out.write(bytes(4096))
    except OSError:
        pass
    if left:
        with file.open("ab") as out:
            out.truncate(max(0, file.stat().st_size - left))
    return file
