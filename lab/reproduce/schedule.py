"""Distribute runs over the GPUs of a machine: as many at a time as fit, each with its own GPUs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

__all__ = ["Task", "devices", "spread"]

_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Task:
    """A run to start.

    Attributes:
        command: the words of the command line.
        output: the file for what it prints.
    """

    command: Sequence[str]
    output: Path


def devices() -> list[str]:
    """The GPUs that may be used, by their names in `CUDA_VISIBLE_DEVICES`; none on a machine without a driver."""
    if _VISIBLE in os.environ:
        return [one for one in os.environ[_VISIBLE].split(",") if one.strip()]
    try:
        found = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return []
    return found.stdout.split() if found.returncode == 0 else []


def spread(tasks: Sequence[Task], gpus: Sequence[str], each: int = 1) -> list[int]:
    """Run tasks, as many at a time as there are sets of GPUs.

    Args:
        tasks: in the order in which they start.
        gpus: their names in `CUDA_VISIBLE_DEVICES`.
        each: the number of GPUs for one run; a remainder stays unused.

    Returns:
        The exit code of every task.

    Raises:
        ValueError: there are fewer GPUs than one run needs.
    """
    sets = [",".join(gpus[start : start + each]) for start in range(0, len(gpus) - each + 1, each)]
    if not sets:
        raise ValueError(f"a run needs {each} GPUs and there are {len(gpus)}")
    free: SimpleQueue[str] = SimpleQueue()
    for one in sets:
        free.put(one)

    def run(task: Task) -> int:
        visible = free.get()
        try:
            task.output.parent.mkdir(parents=True, exist_ok=True)
            with task.output.open("a") as file:
                return subprocess.run(
                    task.command, stdout=file, stderr=file, env={**os.environ, _VISIBLE: visible}
                ).returncode
        finally:
            free.put(visible)

    with ThreadPoolExecutor(len(sets)) as pool:
        return list(pool.map(run, tasks))
