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

ragen-verl show runs/RUN --stop context_full --search "wait" --json

ragen-verl show runs/eval/nano-frozen_lake --policy oracle --policy random --seed 123"""


def show(
    run: Path = typer.Argument(help="The folder of a run, finished or not, or of an evaluation."),
    step: int = typer.Option(None, min=0, help="Step to show.  \\[default: the last that was played]"),
    split: str = typer.Option(None, help="train, val or generalisation.  \\[default: train; of an evaluation val]"),
    policy: list[str] = typer.Option(None, help="Of an evaluation; may be repeated.  \\[default: all]"),
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
    """Print episodes of a run: each turn's state, reasoning, actions and reward, and why the episode ended.

    Of an evaluation, the policies' episodes of each state are printed side by side.
    """
    from ragen_lab.report.opening import opened
    from ragen_lab.report.reading import SPLITS
    from ragen_lab.report.terminal import beside, episode
    from ragen_lab.report.trajectories import FAILED, OUTCOMES, Wanted

    reads = opened([run])
    played = [one.policy for one in reads if one.policy]
    for name in policy or ():
        if name not in played:
            raise RecipeError(f"--policy {name} is not in {run}: {nearest(name, played)}")
    reads = [one for one in reads if not policy or one.policy in policy]
    split = split or ("val" if played else "train")
    if split not in SPLITS:
        raise RecipeError(f"--split {split} is none: {nearest(split, SPLITS)}")
    if outcome is not None and outcome not in OUTCOMES:
        raise RecipeError(f"--outcome {outcome} is none: {nearest(outcome, OUTCOMES)}")
    steps = reads[0].files.get(split, {})
    if not steps:
        has = ", ".join(reads[0].files) or "none"
        raise RecipeError(f"{run} has no trajectories of the split {split}; it has {has}.")
    if step is not None and step not in steps:
        raise RecipeError(
            f"{run} has no trajectories of {split} at step {step}; it has the steps {_some(list(steps))}."
        )
    step = max(steps) if step is None else step
    wanted = Wanted(FAILED if failed else outcome, env, stop, seed, sample, search)
    records = [(read, one) for read in reads for one in read.records(split, step)]
    found = [(read, one) for read, one in records if wanted.matches(one)]
    out = console()
    if as_json:
        for read, one in found:
            typer.echo(json.dumps({"policy": read.policy, **one} if read.policy else one))
        return
    states: dict[tuple, list[tuple]] = {}  # one episode for each policy of a state and sample
    for read, one in found:
        states.setdefault((one["env"], one["seed"], one["rollout_index"]), []).append((read, one))
    where = split if played else f"{split} step {step}"
    for same in list(states.values())[:limit]:
        out.print(beside([episode(one, f"{read.policy} {where}".strip()) for read, one in same]))
    for note in (note for read in reads for note in read.notes):
        out.print(note, style="yellow")
    more = f"; {limit} shown, --limit shows more" if len(states) > limit else ""
    out.print(f"{len(found)} of {len(records)} trajectories of {where} are like this{more}.")


def _some(steps: list[int]) -> str:
    """Steps as text, the middle of many left out."""
    shown = [str(one) for one in steps]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:5], "...", *shown[-5:]])
