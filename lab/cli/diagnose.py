"""`ragen-verl diagnose`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from ragen_verl.cli.console import console
from ragen_verl.errors import RecipeError
from ragen_verl.names import ECHO

__all__ = ["diagnose"]


def _lines(folder: Path, options: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """The steps of metrics.jsonl; lines without `echo/` metrics get them from the step's trajectories, if any.

    A line cut short by a kill is skipped.

    Args:
        folder: the run's.
        options: of the indicators, as in `ragen.diagnostics.indicators`.

    Raises:
        RecipeError: the folder is not that of a run, or its metrics.jsonl has no step.
    """
    from ragen_verl.diagnostics.echo_trap import StepIndicators
    from ragen_verl.runs.folder import RunFolder
    from ragen_verl.runs.trajectories import read_file

    run = RunFolder(folder)
    if not run.metrics.is_file():
        raise RecipeError(f"{folder} has no metrics.jsonl: name the folder of a run (ragen.run.dir).")
    rows = run.rows()
    if not rows:
        raise RecipeError(f"{run.metrics} has no line with a step: the run logged nothing yet, or it is another file.")
    indicators = StepIndicators(options)
    for row in rows:
        played = folder / "trajectories" / "train" / f"{row['step']:06d}.jsonl"
        if played.is_file() and not any(name.startswith(f"{ECHO}/") for name in row):
            row = indicators(list(read_file(played))) | row
        yield row


def diagnose(
    run_dir: Path = typer.Argument(help="A run's folder (ragen.run.dir), finished or not."),
    baseline_steps: int = typer.Option(
        None, min=3, help="How many first steps are the baseline.  \\[default: the run's]"
    ),
    window: int = typer.Option(None, min=3, help="How many last steps make the current value.  \\[default: the run's]"),
    as_json: bool = typer.Option(False, "--json", help="Print what verdict.json has instead of tables."),
) -> None:
    """Say whether a run is healthy, and if not why, since which step, and what to change."""
    from ragen_verl.diagnostics.monitor import MonitorConfig, judge
    from ragen_verl.diagnostics.table import verdict_table
    from ragen_verl.extensions import use_files
    from ragen_verl.runs.folder import RunFolder

    block = RunFolder(run_dir).ragen_block()
    use_files(block.get("plugins") or [])
    given: dict[str, Any] = {"baseline": baseline_steps, "window": window}
    config = MonitorConfig.from_recipe(block)
    config = replace(config, **{name: value for name, value in given.items() if value is not None})
    options = (block.get("diagnostics") or {}).get("indicators") or {}
    found = judge(_lines(run_dir, options), config)
    if as_json:
        typer.echo(json.dumps(found.record(), indent=2))
    else:
        console().print(verdict_table(found, indicators=True))
