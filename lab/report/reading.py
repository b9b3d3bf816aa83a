"""Read a run's folder, also an unfinished, damaged or older one, with a note on each missing part."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ragen_lab.report.trajectories import finite, normalise

from ragen_verl.errors import RecipeError
from ragen_verl.runs import lock
from ragen_verl.runs.cause import cause
from ragen_verl.runs.folder import RunFolder, mapping
from ragen_verl.runs.trajectories import read_file
from ragen_verl.runs.writing import TrajectoryWarning

__all__ = ["INTERRUPTED", "SPLITS", "SUPERVISED", "Run", "all_files", "mapping_of", "read_run"]

SPLITS = ("train", "val", "generalisation")
INTERRUPTED = "interrupted"
SUPERVISED = "sft.yaml"
"""The configuration of a run of `ragen-verl sft`."""


@dataclass
class Run:
    """The contents of a run's folder; a part that is missing or cannot be read is empty and has a note.

    Attributes:
        folder: the folder.
        config, versions, verdict, summary: the files of these names.
        rows: metrics.jsonl, in the order of the steps.
        files: split -> step -> file of its trajectories.
        notes: a sentence about each part that could not be read.
        version: the `signature` before the reading.
        policy: the policy's name, if these are the episodes of an evaluation; "" for a run.
        played: of an evaluation: (split, step) -> normalised trajectories.
        name: the folder's name, or a shorter one that tells several runs apart.
    """

    folder: RunFolder
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, dict[int, Path]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    version: str = ""
    policy: str = ""
    played: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or self.folder.path.name

    @property
    def recipe(self) -> str:
        """The recipe's name, or the experiment's where the recipe is unknown."""
        known = self.summary.get("recipe") or self.setting("trainer.experiment_name")
        try:
            return str(self.folder.recipe or known or self.name)
        except (AttributeError, OSError, TypeError, ValueError, yaml.YAMLError):  # hydra.yaml is damaged
            return str(known or self.name)

    @property
    def step(self) -> int:
        """The last logged step; 0 before there is one."""
        return self.rows[-1]["step"] if self.rows else 0

    def setting(self, key: str, default: Any = None) -> Any:
        """A value of the resolved configuration by its dotted key."""
        value: Any = self.config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return default if value is None else value

    def series(self, metric: str) -> list[tuple[int, float]]:
        """(step, value) wherever a metric is a finite number."""
        return [(row["step"], float(row[metric])) for row in self.rows if finite(row.get(metric))]

    def state(self) -> str:
        """`evaluation`, `running` (it holds the folder's lock), `failed`, `finished` or `interrupted`."""
        if self.policy:
            return "evaluation"
        if lock.is_held(self.folder.path):
            return "running"
        if self.folder.error.exists():
            return INTERRUPTED if self.cause().startswith("Stopped") else "failed"
        if self.is_supervised:
            return "finished" if any((self.folder.path / "model").glob("*.safetensors")) else INTERRUPTED
        done = [row["step"] for row in self.rows if row["step"]]
        return "finished" if self.summary and self.summary.get("steps") == (done[-1] if done else 0) else INTERRUPTED

    @property
    def is_supervised(self) -> bool:
        """Whether it is a run of `ragen-verl sft`, which is not resumed."""
        return not (self.folder.path / "config.yaml").exists() and (self.folder.path / SUPERVISED).exists()

    def cause(self) -> str:
        """The cause of the run's failure in one line; "" without one."""
        try:
            return cause(self.folder.error.read_text("utf-8", errors="replace"))
        except OSError:
            return ""

    def records(self, split: str, step: int) -> list[dict[str, Any]]:
        """The normalised trajectories of a step; invalid lines are left out, with a note."""
        if self.policy:
            return self.played.get((split, step), [])
        file = self.files.get(split, {}).get(step)
        return [shown for record in self.told(read_file(file) if file else ()) if (shown := normalise(record))]

    def told(self, records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The records as a list; what could not be read of them becomes a note."""
        found: list[dict[str, Any]] = []
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", TrajectoryWarning)
            try:
                found.extend(records)
            except (OSError, RecursionError) as error:
                warnings.warn(f"{self.folder.path} can be read in part only: {error}.", TrajectoryWarning, stacklevel=1)
        if told:
            more = f" ({len(told) - 1} more of its lines are so too.)" if len(told) > 1 else ""
            self.note(str(told[0].message).replace(f"{self.folder.path}/", "") + more)
        return found

    def note(self, sentence: str) -> None:
        """Add a note, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def signature(self) -> str:
        """A text that changes when the run has written something that the page shows."""
        folder = self.folder
        return " ".join(str(_changed(one)) for one in (folder.metrics, folder.verdict, folder.summary, folder.error))


def read_run(path: str | Path) -> Run:
    """Read a run's folder.

    Raises:
        RecipeError: the folder does not exist, or is no folder of a run.
    """
    folder = RunFolder(path)
    if not folder.path.is_dir():
        raise RecipeError(f"There is no folder {path}: name the folder of a run (ragen.run.dir).")
    run = Run(folder)
    run.version = run.signature()
    run.files = {split: found for split in SPLITS if (found := _steps(folder.trajectories(split)))}
    begun = any((folder.path / one).exists() for one in ("config.yaml", "hydra", SUPERVISED))  # stopped early
    if not (folder.metrics.is_file() or run.files or begun):
        inside = sorted(one.parent.name for one in folder.path.glob("*/metrics.jsonl"))
        hint = f" It holds runs: {', '.join(inside[:3])}{', ...' if len(inside) > 3 else ''}." if inside else ""
        raise RecipeError(
            f"{path} is no run's folder: it has no metrics.jsonl, no config.yaml and no trajectories; name the folder "
            f"of a run (ragen.run.dir).{hint}"
        )
    run.config = mapping_of(run, folder.path / (SUPERVISED if run.is_supervised else "config.yaml"))
    run.versions = mapping_of(run, folder.path / "versions.json")
    run.verdict = mapping_of(run, folder.verdict, needed=False)
    run.summary = mapping_of(run, folder.summary, needed=False)
    rows = folder.rows()
    steps = {row["step"]: row for row in rows}  # the last row of a step counts
    run.rows = [steps[step] for step in sorted(steps)]
    if bad := _written(folder.metrics) - len(rows):
        run.note(f"metrics.jsonl: {_lines(bad)} no step (cut short or damaged) and left out.")
    if not run.rows:
        run.note("metrics.jsonl has no step yet: there are no curves.")
    if not run.files:
        run.note("There are no trajectories: trajectories/ is missing or empty.")
    return run


def _written(file: Path) -> int:
    """The number of lines that are not empty."""
    text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
    return sum(bool(line.strip()) for line in text.splitlines())


def all_files(run: Run) -> Iterator[tuple[str, int, Path]]:
    """Split, step and file of all trajectories."""
    return ((split, step, file) for split, files in run.files.items() for step, file in files.items())


def _lines(count: int) -> str:
    return "1 line is" if count == 1 else f"{count} lines are"


def _steps(folder: Path) -> dict[int, Path]:
    files = {int(one.stem): one for one in folder.glob("*.jsonl") if one.stem.isdecimal()}
    return dict(sorted(files.items()))


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def mapping_of(run: Run, file: Path, needed: bool = True) -> dict[str, Any]:
    """The mapping in a file; {} and a note where the file has none."""
    value = mapping(file)
    if value is None and file.exists():
        run.note(f"{file.name} cannot be read (damaged, or being written).")
    elif value is None and needed:
        run.note(f"{file.name} is missing.")
    return value or {}
