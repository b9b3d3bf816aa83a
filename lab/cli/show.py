"""`ragen-verl show`."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from ragen_verl.cli.console import console
from ragen_verl.errors import RecipeError, nearest

__all__ = ["EPILOG", "show"]

EPILOG = """Examples:

ragen-verl show runs/RUN --step 30 --failed

ragen-verl show runs/RUN --split val --seed 123 --limit 8

ragen-verl show runs/RUN --stop context_full --search "wait" --json"""


def show(
    run: Path = typer.Argument(help="A run's folder (ragen.run.dir), finished or not."),
    step: int = typer.Option(None, min=0, help="Step to show.  \\[default: the last that was played]"),
    split: str = typer.Option("train", help="train, val or generalisation."),
    outcome: str = typer.Option(None, help="solved, failed or excluded."),
    failed: bool = typer.Option(False, "--failed", help="The same as --outcome failed."),
    env: str = typer.Option(None, help="The environment's name in the metrics."),
    stop: str = typer.Option(None, help="Stop reason, such as turn_budget."),
    seed: int = typer.Option(None, help="Seed of the group."),
    sample: int = typer.Option(None, min=0, help="Rollout index: the trajectory's number in its group."),
    search: str = typer.Option("", help="A text that occurs in a state, a response, an action or an error."),
    limit: int = typer.Option(3, min=1, help="How many to print."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object a line, all that match."),
) -> None:
    """Print episodes of a run: each turn's state, reasoning, actions and reward, and why the episode ended."""
    from ragen_lab.report.reading import SPLITS, read_run
    from ragen_lab.report.terminal import episode
    from ragen_lab.report.trajectories import FAILED, OUTCOMES, Wanted

    if split not in SPLITS:
        raise RecipeError(f"--split {split} is none: {nearest(split, SPLITS)}")
    if outcome is not None and outcome not in OUTCOMES:
        raise RecipeError(f"--outcome {outcome} is none: {nearest(outcome, OUTCOMES)}")
    read = read_run(run)
    steps = read.files.get(split, {})
    if not steps:
        raise RecipeError(f"{run} has no trajectories of the split {split}; it has {', '.join(read.files) or 'none'}.")
    if step is not None and step not in steps:
        raise RecipeError(
            f"{run} has no trajectories of {split} at step {step}; it has the steps {_some(list(steps))}."
        )
    step = max(steps) if step is None else step
    wanted = Wanted(FAILED if failed else outcome, env, stop, seed, sample, search)
    records = read.records(split, step)
    found = [one for one in records if wanted.matches(one)]
    out = console()
    if as_json:
        for one in found:
            typer.echo(json.dumps(one))
        return
    for one in found[:limit]:
        out.print(episode(one, f"{split} step {step}"))
    for note in read.notes:
        out.print(note, style="yellow", markup=False)
    more = f"; {limit} shown, --limit shows more" if len(found) > limit else ""
    out.print(f"{len(found)} of {len(records)} trajectories of {split} step {step} are like this{more}.", markup=False)


def _some(steps: list[int]) -> str:
    """Steps as text, the middle of many left out."""
    shown = [str(one) for one in steps]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:5], "...", *shown[-5:]])
