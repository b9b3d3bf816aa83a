"""The saved trajectories of runs and evaluations, as an iterator: `read(path, split="val", success=False)`.

A run's folder has `trajectories/SPLIT/STEP.jsonl`, the folder of an evaluation's policy has `episodes.jsonl`. In the
same folder `preambles.jsonl` has the system messages and task prompts, each once. A line that cannot be read is skipped
with a warning.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from ragen_verl.errors import RecipeError
from ragen_verl.rollout.record import COMMON, decode, encode, messages, task_prompt_key
from ragen_verl.rollout.trajectory import plain
from ragen_verl.runs import disk

__all__ = [
    "EPISODES",
    "TASK_PROMPTS",
    "Record",
    "TaskPrompts",
    "TrajectoryWarning",
    "appending",
    "features",
    "files",
    "line",
    "messages",
    "read",
    "read_file",
    "write",
]

Record = dict[str, Any]

EPISODES = "episodes.jsonl"
TASK_PROMPTS = "preambles.jsonl"


class TrajectoryWarning(UserWarning):
    """A part of a file could not be read; the message names the file and the line."""


def read(
    path: str | Path,
    *,
    split: str | None = None,
    steps: Collection[int] | None = None,
    env: str | None = None,
    success: bool | None = None,
    stop_reason: str | None = None,
    min_return: float | None = None,
    where: Callable[[Record], bool] | None = None,
) -> Iterator[Record]:
    """The trajectories of a run, an evaluation or a file, as `Trajectory.record()` made them, in the order of files.

    Each has in addition `split`, `step` (None in an evaluation), and in training `kept` (whether the update saw it).

    Args:
        path: see `files`.
        split: `train`, `val` or `generalisation`.
        steps: training steps.
        env: the environment's name in the metrics.
        success, stop_reason: the outcome and the reason of the end.
        min_return: the smallest return.
        where: any other condition.

    Raises:
        RecipeError: there are no trajectories at all; it is no error if none meets the conditions.
    """
    for file in files(path):
        at = _place(file)
        if (split is not None and at.get("split", split) != split) or (
            steps is not None and at.get("step", None) not in steps
        ):
            continue
        for record in read_file(file):
            if (
                (split is None or record["split"] == split)
                and (env is None or record["env"] == env)
                and (success is None or record["success"] is success)
                and (stop_reason is None or record["stop_reason"] == stop_reason)
                and (min_return is None or record["return"] >= min_return)
                and (where is None or where(record))
            ):
                yield record


def files(path: str | Path) -> list[Path]:
    """The JSONL files of a run's folder, of an evaluation (of one policy or all), or the file itself.

    Raises:
        RecipeError: there is none.
    """
    path = Path(path).expanduser()
    if path.is_file():
        return [path]
    found = sorted((path / "trajectories").glob("*/*.jsonl"), key=lambda file: (file.parent.name, file.stem.zfill(9)))
    found = found or [path / EPISODES] * (path / EPISODES).is_file() or sorted(path.glob(f"*/{EPISODES}"))
    if not found:
        what = "has no trajectories" if path.is_dir() else "does not exist"
        raise RecipeError(
            f"{path} {what}: name the folder of a run or of an evaluation, or a JSONL file. A run writes its first "
            "trajectories when its first step or evaluation ends."
        )
    return found


def read_file(file: Path, broken: Callable[[str], None] | None = None) -> Iterator[Record]:
    """The trajectories of one file.

    Args:
        file: JSONL.
        broken: called with a sentence about each line that is left out; None gives a warning.
    """
    broken = broken or _warn
    task_prompts, at = _task_prompts_for(file), _place(file)
    for number, row in _rows(file, broken):
        try:
            record = decode(row, task_prompts)
        except RecipeError as error:
            broken(f"{file}, line {number}, is left out: {error}.")
            continue
        record = {"split": None, "step": None} | at | record
        if record["split"] != "train":
            record.pop("kept", None)
        yield record


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
            rows = _rows(self._file, _warn) if self._file.is_file() else ()
            self._known = {row.pop("key"): row for _, row in rows if {"key", "system", "head"} <= set(row)}
        return self._known

    def add(self, texts: Mapping[str, str]) -> None:
        """Add a task prompt to the file if it is new."""
        key = task_prompt_key(texts)
        if key not in self.known:
            with disk.naming(self._file), appending(self._file) as out:
                out.write(json.dumps({"key": key, **texts}, ensure_ascii=False) + "\n")
            self._known[key] = dict(texts)


def features(*, tokens: bool = False, evaluation: bool = False) -> Any:
    """The columns of a file, for `datasets.load_dataset("json", data_files=..., features=features())`.

    Without them `datasets` takes the types from the first file, in which a list that is always empty has no type.

    Args:
        tokens: whether the run has `ragen.run.tokens`.
        evaluation: whether the files are those of an evaluation.

    Returns:
        A `datasets.Features`.
    """
    from datasets import Features, List, Value

    def columns(kind: str, names: str) -> dict[str, Any]:
        return {name: Value(kind) for name in names.split()}

    turn = columns("int64", "turn shown_from prompt_tokens response_tokens")
    turn |= columns("string", "user state prefix response reasoning observation rewards")
    turn |= columns("bool", "format_ok valid effective")
    turn |= columns("float64", "reward penalty generate_seconds env_seconds")
    turn |= {name: List(Value("string")) for name in ("actions", "executed", "infos", "calls")}
    if tokens:
        turn["tokens"] = {name: List(Value("int64")) for name in ("prompt_ids", "ids", "offsets", "mask")}
        turn["tokens"] |= {name: List(Value("float64")) for name in ("log_probs", "advantages")}
    found = columns("int64", "schema protocol seed rollout_index")
    found |= columns("string", "package preamble env_id env stop_reason error env_metrics split")
    found |= columns("bool", "success truncated excluded row_per_turn")
    found |= columns("float64", "return started seconds")
    found |= {"metrics": {name: Value("float64") for name in COMMON}, "turns": List(turn)}
    if evaluation:
        usage = columns("int64", "prompt_tokens completion_tokens") | {"seconds": List(Value("float64"))}
        usage |= {name: List(Value("string")) for name in ("finishes", "left_out")}
        return Features(found | {"policy": Value("string"), "usage": usage})
    return Features(found | {"step": Value("int64"), "kept": Value("bool")})


def _rows(file: Path, broken: Callable[[str], None]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers."""
    with file.open("rb") as source:
        for number, raw in enumerate(source, start=1):
            if not raw.strip():
                continue
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                text = raw.decode(errors="replace")
                _warn(
                    f"{file}, line {number}, has bytes that are no UTF-8; they are read as \N{REPLACEMENT CHARACTER}."
                )
            try:
                row = json.loads(text)
            except json.JSONDecodeError as error:
                cut = "it is cut short" if not raw.endswith(b"\n") else f"it is no JSON ({error.msg})"
                broken(f"{file}, line {number}, is left out: {cut}.")
                continue
            if not isinstance(row, dict):
                broken(f"{file}, line {number}, is left out: it is no JSON object.")
                continue
            yield number, plain(row) if "\\ud" in text or "\\uD" in text else row  # perhaps a lone surrogate


def _place(file: Path) -> dict[str, Any]:
    """Split and step of a run's file, from its path."""
    if file.parent.parent.name == "trajectories" and file.stem.isdigit():
        return {"split": file.parent.name, "step": int(file.stem)}
    return {}


def _task_prompts_for(file: Path) -> Mapping[str, Mapping[str, str]]:
    found = (folder / TASK_PROMPTS for folder in file.absolute().parents[:3])
    return next((TaskPrompts(one).known for one in found if one.is_file()), {})


def _warn(text: str) -> None:
    warnings.warn(text, TrajectoryWarning, stacklevel=3)
