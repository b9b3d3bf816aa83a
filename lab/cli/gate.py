"""`ragen-verl gate`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
import yaml
from ragen_lab.cli.score import BY, PLUGIN, SET, SPLIT, judged, left_out, parsed

from ragen_verl.cli.console import console
from ragen_verl.errors import RecipeError

__all__ = ["EPILOG", "gate"]

EPILOG = """Exit code: 0 if nothing is worse, 1 if something is, 2 if it cannot be decided (too few states, ...).

ragen-verl gate runs/NEW --baseline runs/OLD

ragen-verl gate runs/RUN --baseline runs/RUN --baseline-step first --tolerance success=0.02

A thresholds file has any of the keys tolerance, measures, min_states, confidence:

tolerance: {success: 0.02, step_efficiency: 0.05}"""


def gate(
    run: Path = typer.Argument(help="A run's folder, one policy's folder of an evaluation, or a JSONL file."),
    baseline: Path = typer.Option(..., help="What the run is compared with, in the same form."),
    thresholds: Path = typer.Option(None, help="A YAML file with thresholds; the options below override it."),
    tolerance: list[str] = typer.Option(
        (), metavar="MEASURE=VALUE", help="How much worse a measure may be; may be repeated."
    ),
    min_states: int = typer.Option(None, min=2, help="Initial states that each side needs.  \\[default: 20]"),
    confidence: float = typer.Option(None, help="Confidence that all intervals hold.  \\[default: 0.95]"),
    split: str = SPLIT,
    step: str = typer.Option("last", help="Step of a run: first, last, best, all or a number."),
    baseline_step: str = typer.Option("last", help="Step of the baseline."),
    by: list[str] = BY,
    settings: list[str] = SET,
    plugin: list[str] = PLUGIN,
    judge: str = typer.Option(None, metavar="MODEL[@URL]", help="Ask this model for a judgement of every trajectory."),
    out: Path = typer.Option(None, help="Folder for gate.json and gate.md."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
) -> None:
    """Fail if a run is worse than a baseline in success, in return or in an evaluator.

    Saved trajectories are compared state by state if both played the same initial states, otherwise as two samples. A
    measure degrades if its whole interval lies on the wrong side; the intervals of all measures hold together.
    """
    from ragen_lab.score import cohorts
    from ragen_lab.score import gate as gates
    from ragen_lab.score.registry import run as evaluate
    from ragen_lab.score.saved import load

    from ragen_verl.extensions import use_files

    use_files(plugin)
    limits = _limits(thresholds, tolerance, min_states, confidence)
    key = cohorts.by(by)
    ours, theirs = load(run, split=split, step=step), load(baseline, split=split, step=baseline_step)
    for saved in (ours, theirs):
        options = parsed(settings)
        if judge:
            options["judge"] = {**options.get("judge", {}), **judged(judge, None, saved.path)}
        called = evaluate(saved.trajectories, None, options)
    found = gates.gate(ours.trajectories, theirs.trajectories, cohorts.measures(called), key, limits)
    absent = {"run": left_out(ours), "baseline": left_out(theirs)}
    about = {"run": str(run), "baseline": str(baseline), "left_out": absent}
    record = {**about, **gates.results(found, limits.confidence)}
    title = f"{run} against {baseline}"
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "gate.json").write_text(json.dumps(record, indent=2))
        (out / "gate.md").write_text(gates.markdown(found, title))
    worse = [one for one in found if one.outcome == gates.DEGRADED]
    if as_json:
        typer.echo(json.dumps(record, indent=2))
    else:
        console().print(gates.table(found, title))
        for one in worse:
            console().print(f"Degraded: {one.sentence()}", style="red", soft_wrap=True)
        if few := [f"{one.measure} in {one.cohort} ({one.states})" for one in found if one.outcome == gates.FEW]:
            console().print(f"Not compared, for too few states that have it: {', '.join(few)}.")
        for side, counts in absent.items():
            if any(counts.values()):
                failed, broken = counts["excluded"], counts["broken_lines"]
                told = f"{failed} episodes that environment or engine failed, {broken} lines that are no record"
                console().print(f"Left out of the {side}: {told}.", style="yellow")
        if not worse:
            console().print(f"Nothing is worse, at {limits.confidence:.0%} confidence over all measures.")
    raise typer.Exit(1 if worse else 0)


def _limits(file: Path | None, tolerance: list[str], min_states: int | None, confidence: float | None) -> Any:
    from ragen_lab.score.gate import Thresholds

    from ragen_verl.config.schema import parse

    block: dict[str, Any] = {}
    if file:
        try:
            block = yaml.safe_load(file.read_text("utf-8")) or {}
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise RecipeError(f"The thresholds {file} cannot be read: {' '.join(str(error).split())}.") from error
    limits = parse(Thresholds, block, file.name if file else "thresholds")
    given = {}
    for text in tolerance:
        name, _, value = text.partition("=")
        try:
            given[name] = float(value)
        except ValueError:
            raise RecipeError(f"--tolerance {text!r} is not of the form MEASURE=NUMBER.") from None
    own = {"min_states": min_states, "confidence": confidence}
    own = {name: value for name, value in own.items() if value is not None}
    return parse(Thresholds, {**vars(replace(limits, tolerance={**limits.tolerance, **given})), **own}, "the options")
