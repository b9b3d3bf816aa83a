"""The runs below a folder in one table, and the differences between two of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ragen_lab.report.about import HeldOut, before_and_after, seconds, verdict
from ragen_lab.report.reading import INTERRUPTED, SUPERVISED, Run, read_run
from rich.table import Table

from ragen_verl.errors import RecipeError
from ragen_verl.runs.launch import typed
from ragen_verl.runs.resume import changes, history

__all__ = ["difference_tables", "differences", "find", "record", "table"]

_SHORT = 60


def find(folder: Path) -> list[Run]:
    """The runs below a folder, or the folder's own, the newest first; a run's folder is not searched for others.

    Raises:
        RecipeError: there is no such folder, or no run in it.
    """
    if not folder.is_dir():
        raise RecipeError(f"There is no folder {folder}: name one with runs in it.")
    found = []
    for here, below, names in os.walk(folder):
        if {"metrics.jsonl", SUPERVISED}.intersection(names) or {"config.yaml", "versions.json"} <= set(names):
            found.append(read_run(here))
            below.clear()
    if not found:
        raise RecipeError(f"There is no run in {folder}: `ragen-verl train RECIPE` makes one in runs/.")
    return sorted(found, key=_began, reverse=True)


def _began(run: Run) -> float:
    """The time when the run was started or resumed, in seconds since 1970."""
    files = (run.folder.path / "config.yaml", run.folder.metrics)
    return next((file.stat().st_mtime for file in files if file.exists()), 0.0)


def _go_on(run: Run) -> str | None:
    """The command that resumes an unfinished run; None for other runs."""
    ended = run.state() in (INTERRUPTED, "failed") and not run.is_supervised
    return typed("resume", str(run.folder.path)) if ended else None


def record(run: Run, below: Path) -> dict[str, Any]:
    """One run as data for JSON: `run` (its path below a folder), recipe, state, steps, held-out success, verdict."""
    path, parent = run.folder.path, below.resolve()
    held_out = before_and_after(run)
    return {
        "run": str(path.relative_to(parent)) if path != parent and path.is_relative_to(parent) else path.name,
        "folder": str(path),
        "recipe": run.recipe,
        "state": run.state(),
        "cause": run.cause() if run.state() == "failed" else "",
        "step": run.step,
        "steps": run.setting("trainer.total_training_steps"),
        "seconds": round(seconds(run), 1),
        "held_out": {when: vars(one) for when, one in held_out.items()},
        "verdict": run.verdict.get("status"),
        "verdict_words": verdict(run),
        "started": datetime.fromtimestamp(_began(run)).astimezone().isoformat(timespec="seconds"),
        "continue": _go_on(run),
    }


def table(records: Sequence[Mapping[str, Any]]) -> Table:
    """The runs as a table for the terminal."""
    out = Table(box=None, header_style="bold")
    for column in ("run", "recipe", "state", "step", "best held-out success", "last", "verdict", "started"):
        out.add_column(column, justify="right" if column in ("step", "best held-out success", "last") else "left")
    styles = {"running": "cyan", "failed": "red", INTERRUPTED: "yellow"}
    for one in records:
        rates = one["held_out"]
        out.add_row(
            one["run"],
            one["recipe"],
            one["state"],
            f"{one['step']}/{one['steps'] or '?'}",
            _rate(rates.get("best") or rates.get("before")),
            _rate(rates.get("after") or rates.get("before")),
            one["verdict_words"] or "-",
            one["started"][:16].replace("T", " "),
            style=styles.get(one["state"]),
        )
    return out


def _rate(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    one = HeldOut(**found)
    within = "" if one.low is None else f" ({100 * one.low:.0f} to {100 * one.high:.0f})"
    return f"{100 * one.success:.1f} %{within} @ step {one.step}"


def differences(one: Run, other: Run) -> dict[str, list[tuple[str, str, str]]]:
    """The differences between two runs.

    Returns:
        `settings: BLOCK` (of the resolved configuration), `versions` and `results` -> (key, value of the first, value
        of the second); groups without a difference are left out. Folders and working folders are not compared.
    """
    found: dict[str, list[tuple[str, str, str]]] = {}
    for key, first, second in changes(one.config, other.config):
        block = ".".join(key.split(".")[:2]) if key.startswith(("ragen.", "actor_rollout_ref.")) else key.split(".")[0]
        found.setdefault(f"settings: {block}", []).append((key, _shown(first), _shown(second)))
    changed = [history(each.folder) for each in (one, other)]
    for key in dict.fromkeys((*changed[0], *changed[1])):
        first, second = (_over_time(each.get(key)) for each in changed)
        found.setdefault("settings changed at a resume", []).append((key, first, second))
    for name in dict.fromkeys((*one.versions, *other.versions)):
        first, second = (_shown(each.versions.get(name, ...)) for each in (one, other))
        if first != second:
            found.setdefault("versions", []).append((name, first, second))
    sides = [dict(_results(each)) for each in (one, other)]
    for name in dict.fromkeys((*sides[0], *sides[1])):
        first, second = (side.get(name, "-") for side in sides)
        if first != second:
            found.setdefault("results", []).append((name, first, second))
    return found


def _over_time(values: Sequence[tuple[int, Any]] | None) -> str:
    return ", ".join(f"{_shown(value)} from step {step}" for step, value in values) if values else "-"


def _results(run: Run) -> Iterator[tuple[str, str]]:
    yield "recipe", run.recipe
    yield "state", run.state()
    yield "steps", str(run.step)
    yield "seconds", f"{seconds(run):.0f}"
    yield "verdict", verdict(run) or "-"
    for when, one in before_and_after(run).items():
        yield f"held-out success {when}", _rate(vars(one))
        if one.ret is not None:
            yield f"held-out return {when}", f"{one.ret:.3f} @ step {one.step}"


def _shown(value: Any) -> str:
    text = "(not there)" if value is ... else str(value)
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


def difference_tables(found: Mapping[str, Sequence[tuple[str, str, str]]], names: tuple[str, str]) -> Iterator[Table]:
    """The differences for the terminal, with a table for each group."""
    for title, rows in found.items():
        out = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim")
        for column in ("", *names):
            out.add_column(column, overflow="fold")
        for row in rows:
            out.add_row(*row)
        yield out
