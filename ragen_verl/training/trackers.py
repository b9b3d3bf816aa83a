"""Data for verl's trackers in addition to metrics: paths in the run's folder, and trajectories for their tables."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from itertools import count
from pathlib import Path

from ragen_verl.rollout.trajectory import Record

__all__ = ["FOLDERS", "samples", "write_inside"]

FOLDERS = {"TENSORBOARD_DIR": "tensorboard", "WANDB_DIR": ".", "TRACKIO_DIR": "trackio"}
"""Environment variable -> its path in the run's folder; wandb adds a folder `wandb` of its own."""

_FILE, _FILE_ROOT = "VERL_FILE_LOGGER_PATH", "VERL_FILE_LOGGER_ROOT"


def write_inside(folder: Path, step: int, loggers: Collection[str]) -> None:
    """Make the trackers of this process write into a run's folder, except those that the user configured otherwise.

    The tracker `file` overwrites its file when a process starts, so each start has a file of its own.

    Args:
        folder: the run's folder.
        step: the step at which this process starts.
        loggers: `trainer.logger`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for variable, inside in FOLDERS.items():
        os.environ.setdefault(variable, str(folder / inside))
    if "file" in loggers and _FILE not in os.environ and _FILE_ROOT not in os.environ:
        names = (f"{step:06d}.jsonl" if number == 0 else f"{step:06d}-{number}.jsonl" for number in count())
        file = next(file for name in names if not (file := folder / "file" / name).exists())
        file.parent.mkdir(parents=True, exist_ok=True)
        os.environ[_FILE] = str(file)


def samples(records: Sequence[Record], most: int) -> list[tuple[str, str, float]]:
    """Trajectories for verl's table: the first messages, the rest of the episode, the return.

    Args:
        records: those of one evaluation, with their task prompts; every evaluation has the same initial states.
        most: how many to show; they are spread evenly over environments and seeds, and are the same at every
            evaluation.
    """
    ordered = sorted(records, key=lambda one: (one["env"], one["seed"], one["rollout_index"]))
    shown = min(most, len(ordered))
    return [_sample(ordered[place * len(ordered) // shown]) for place in range(shown)]


def _sample(record: Record) -> tuple[str, str, float]:
    from ragen_verl.rollout.reading import messages, transcript

    opening = messages(record, 1) if record["turns"] else []
    return "\n\n".join(one["content"] for one in opening), transcript(record), record["return"]
