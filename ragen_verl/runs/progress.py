"""The progress of a run: a bar on a terminal, or else one plain line per step."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ragen_verl.names import (
    EPISODES,
    FAILED,
    GENERALISATION,
    HELD_OUT,
    HELD_OUT_SUCCESS,
    RETURN,
    STEP_SECONDS,
    SUCCESS,
    TRAIN_SUCCESS,
    VALID,
)
from ragen_verl.runs.folder import RunFolder

__all__ = ["ProgressDisplay", "evaluation_table", "result_table"]

_ROWS = {"held-out success": SUCCESS, "held-out return": RETURN, "valid turns": VALID}
_GROUPS = re.compile(rf"{HELD_OUT}/([^/]+)/groups").fullmatch
_IMPORTING, _RAY, _ENGINE = "importing verl", "starting Ray", "starting the engine"
# text in the log -> phase, used until the trainer itself writes its phase (`RunFolder.phase`)
_MARKS = {"ray init kwargs": _RAY, "WorkerDict pid=": "loading the weights", "vLLMHttpServer pid=": _ENGINE}

_PHASES = (_IMPORTING, *_MARKS.values())


class ProgressDisplay:
    """A display that follows a run through its folder; call `look` regularly.

    Args:
        folder: the run's folder.
        console: the console for the output.
    """

    def __init__(self, folder: RunFolder, console: Console) -> None:
        self._folder, self._console = folder, console
        self._started, self._seen, self._phase = time.time(), 0, ""
        self._total: int | None = None
        self._held_out: float | None = None
        self._log_at = folder.log_file.stat().st_size if folder.log_file.exists() else 0
        self._log_phase = _IMPORTING
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Progress(TextColumn("{task.description}", markup=False), *columns, console=console)
        self._task = self._bar.add_task(_IMPORTING, total=None)

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def look(self) -> None:
        """Show the new steps and the present phase."""
        rows = [row for row in self._folder.rows() if row["time"] >= self._started]
        if not rows and (phase := self._now()) != self._phase:
            self._phase = phase
            self._show(phase, f"[{time.time() - self._started:4.0f} s] {phase}")
        for row in rows[self._seen :]:
            self._total = self._total or _total_steps(self._folder)
            self._held_out = row.get(HELD_OUT_SUCCESS, self._held_out)
            text = self._text(row)
            self._show(text, f"step {row['step']}/{self._total}: {text}", row["step"])
        self._seen = len(rows)

    def _show(self, short: str, line: str, step: int | None = None) -> None:
        if self._console.is_terminal:
            self._bar.update(self._task, description=short, completed=step, total=self._total)
        else:
            self._console.print(line, markup=False, soft_wrap=True)

    def _now(self) -> str:
        """The phase that the trainer wrote, or before that the phase in the log."""
        if self._folder.phase.exists():
            said = self._folder.phase.read_text()
            if said and self._folder.phase.stat().st_mtime >= self._started:
                return said
        if self._folder.log_file.exists():
            with self._folder.log_file.open("rb") as file:
                file.seek(self._log_at)
                new = file.read()
            self._log_at += len(new)
            seen = [phase for mark, phase in _MARKS.items() if mark.encode() in new]
            self._log_phase = max([self._log_phase, *seen], key=_PHASES.index)
        return self._log_phase

    def _text(self, row: dict[str, Any]) -> str:
        held_out = "" if self._held_out is None else f"held-out success {self._held_out:.1%}"
        if TRAIN_SUCCESS not in row:
            return held_out or "evaluated"
        failed = f"{share:.0%} of the episodes failed" if (share := row.get(FAILED)) else ""
        shown = [f"training success {row[TRAIN_SUCCESS]:.1%}", held_out, failed, _verdict(self._folder)]
        return ", ".join(one for one in (*shown, f"{row.get(STEP_SECONDS, 0):.1f} s a step") if one)


def result_table(folder: RunFolder) -> Table:
    """The results on held-out seeds before, at best and after, in total and by environment, and the run's time."""
    summary = json.loads(folder.summary.read_text())
    took = f"{summary['steps']} steps in {summary['seconds']:.0f} s"
    failed = summary.get("failed_episodes")
    table = Table(title=f"{summary['recipe']}, seed {summary['seed']}: {took}")
    best = summary.get("best")
    when = {"before": "before", "best": f"best (step {best['step']})" if best else "best", "after": "after"}
    for name in ("", *when.values()):
        table.add_column(name, justify="right" if name else "left")
    for label, key in _ROWS.items():
        table.add_row(label, *(f"{summary[one][key]:.3f}" if summary.get(one) else "-" for one in when))
    rows = {row["step"]: row for row in folder.rows() if HELD_OUT_SUCCESS in row}
    then = [rows.get(summary[one].get("step"), {}) if summary.get(one) else {} for one in when]
    for env in _environments(then):
        shares = (row.get(f"{HELD_OUT}/{env}/{SUCCESS}") for row in then)
        table.add_row(f"  success in {env}", *("-" if one is None else f"{one:.3f}" for one in shares))
    if failed:
        table.add_row("failed episodes", "", "", str(failed))
    return table


def _environments(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the held-out environments in lines of metrics.jsonl; none if there is one only."""
    names = dict.fromkeys(found[1] for row in rows for key in row if (found := _GROUPS(key)))
    return list(names) if len(names) > 1 else []


def evaluation_table(folder: RunFolder) -> Table:
    """The results of `trainer.val_only=true`, with a column for each split."""
    found = json.loads(folder.evaluation.read_text())
    splits = {"held out": HELD_OUT, "other environments": GENERALISATION}
    played = {label: prefix for label, prefix in splits.items() if f"{prefix}/{SUCCESS}" in found}
    table = Table(title=f"The policy of step {found['step']}")
    for name in ("", *played):
        table.add_column(name, justify="right" if name else "left")
    for label, key in {"success": SUCCESS, "return": RETURN, "valid turns": VALID, "episodes": EPISODES}.items():
        cells = (found[f"{prefix}/{key}"] for prefix in played.values())
        table.add_row(label, *(f"{cell:.0f}" if key == EPISODES else f"{cell:.3f}" for cell in cells))
    return table


def _total_steps(folder: RunFolder) -> int | None:
    file = folder.path / "config.yaml"
    return OmegaConf.load(file).trainer.total_training_steps if file.exists() else None


def _verdict(folder: RunFolder) -> str:
    """The verdict's headline; empty while there is no verdict."""
    try:
        found = json.loads(folder.verdict.read_text())
    except (OSError, json.JSONDecodeError):
        return ""
    return f"verdict {found['status']}" + (f" ({found['primary']})" if found.get("primary") else "")
