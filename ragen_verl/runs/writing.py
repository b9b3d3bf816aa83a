"""Write trajectories, one on a line, and their system messages and task prompts, each once, beside them.

`ragen_verl.runs.trajectories` reads them.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from ragen_verl.rollout.record import encode, task_prompt_key
from ragen_verl.rollout.trajectory import Record, plain
from ragen_verl.runs import disk

__all__ = ["TASK_PROMPTS", "TaskPrompts", "TrajectoryWarning", "appending", "line", "rows", "warn", "write"]

TASK_PROMPTS = "preambles.jsonl"


class TrajectoryWarning(UserWarning):
    """A part of a file could not be read; the message names the file and the line."""


def write(file: Path, records: Iterable[Record], task_prompts: TaskPrompts) -> None:
    """Write a file of trajectories in one piece: a reader sees the old file or the new one.

    Raises:
        OSError: it cannot be written; with the file's name.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".tmp")
    try:
        with disk.naming(file):
            with beside.open("w", encoding="utf-8") as out:
                for record in records:
                    out.write(line(record, task_prompts))
            os.replace(beside, file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def line(record: Record, task_prompts: TaskPrompts) -> str:
    """A record as a line of a file; its task prompt is added to `task_prompts`."""
    if record["preamble"]:
        task_prompts.add(record["preamble"])
    return json.dumps(encode(record), ensure_ascii=False) + "\n"


def appending(file: Path) -> IO[str]:
    """Open a file for further lines; a last line that a kill cut short first gets its line break."""
    file.parent.mkdir(parents=True, exist_ok=True)
    out = file.open("ab+")
    if out.tell():
        out.seek(-1, os.SEEK_END)
        if out.read() != b"\n":
            out.write(b"\n")
    out.close()
    return file.open("a", encoding="utf-8")


class TaskPrompts:
    """The system messages and task prompts of a folder, each on one line: `{"key", "system", "head"}`.

    Args:
        file: the file, which is created with the first task prompt.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, dict[str, str]] | None = None

    @property
    def known(self) -> Mapping[str, Mapping[str, str]]:
        """Key -> texts."""
        if self._known is None:
            found = rows(self._file, warn) if self._file.is_file() else ()
            self._known = {row.pop("key"): row for _, row in found if {"key", "system", "head"} <= set(row)}
        return self._known

    def add(self, texts: Mapping[str, str]) -> None:
        """Add a task prompt to the file if it is new."""
        key = task_prompt_key(texts)
        if key not in self.known:
            with disk.naming(self._file), appending(self._file) as out:
                out.write(json.dumps({"key": key, **texts}, ensure_ascii=False) + "\n")
            self._known[key] = dict(texts)


def rows(file: Path, broken: Callable[[str], None]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers; `broken` is told of each line that is none."""
    if file.is_dir():
        return broken(f"{file} is left out: it is a folder.")
    with file.open("rb") as source:
        for number, raw in enumerate(source, start=1):
            if not raw.strip():
                continue
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                text = raw.decode(errors="replace")
                warn(f"{file}, line {number}, has bytes that are no UTF-8; they are read as \N{REPLACEMENT CHARACTER}.")
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                cut = "it is cut short" if not raw.endswith(b"\n") else f"it is no JSON ({error})"
                broken(f"{file}, line {number}, is left out: {cut}.")
                continue
            if not isinstance(row, dict):
                broken(f"{file}, line {number}, is left out: it is no JSON object.")
                continue
            yield number, plain(row) if "\\ud" in text or "\\uD" in text else row  # perhaps a lone surrogate


def warn(text: str) -> None:
    """Warn of what could not be read."""
    warnings.warn(text, TrajectoryWarning, stacklevel=3)
