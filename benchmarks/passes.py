"""Passes of verl's own worker, measured on one thread: seconds of the processor and memory, each in its own process."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ragen_verl.runs.folder import versions

if TYPE_CHECKING:
    from ragen_lab.qualify.workers import Rows
    from verl.workers.engine_workers import ActorRolloutRefWorker


def least(work: Callable[[], object], rounds: int) -> float:
    """The least seconds of the processor of some rounds."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def passes(worker: ActorRolloutRefWorker, rows: Rows, rounds: int, **told: Any) -> dict[str, float]:
    """Seconds of the log-probabilities and of an update of these rows, and gigabytes held above what was held before.

    Args:
        told: settings of a call, such as rows of a micro-batch.
    """
    torch.set_num_threads(1)
    old = [torch.zeros_like(one) for one in rows.advantages]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "log_probs": least(lambda: rows.log_probs(worker, entropy=True, **told), rounds),
        "update": least(lambda: rows.update(worker, old, entropy=True, **told), rounds),
        "gigabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20,
    }


def apart(file: str, *options: str) -> dict[str, float]:
    """What a benchmark run with these options prints last, as JSON, in a process of its own.

    Raises:
        SystemExit: it failed; the text is what it wrote to stderr.
    """
    environment = {**os.environ, "RAGEN_VERL": "1"}
    done = subprocess.run([sys.executable, file, *options], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def saved(result: Path) -> dict[str, Any]:
    """What a file of results has already: name -> figures."""
    return json.loads(result.read_text())["found"] if result.is_file() else {}


def save(result: Path, found: dict[str, Any]) -> None:
    """Write the figures with the machine's size and the versions."""
    result.write_text(json.dumps({"found": found, "cores": os.cpu_count(), "versions": versions()}, indent=2) + "\n")
