"""`ragen-verl score`, and the options that it shares with `gate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
import yaml

from ragen_verl.cli.console import console
from ragen_verl.errors import RecipeError

__all__ = ["BY", "EPILOG", "PLUGIN", "SET", "SPLIT", "judged", "left_out", "parsed", "score"]

EPILOG = """Examples:

ragen-verl score runs/RUN

ragen-verl score runs/RUN --step all --by step

ragen-verl score runs/eval/RECIPE/POLICY --by environment --by seeds --out scores

ragen-verl score runs/RUN --judge my-model@http://127.0.0.1:8000/v1 --set reward_hacking.evaluator=judge"""
SET = typer.Option((), "--set", metavar="NAME.OPTION=VALUE", help="An evaluator's option; may be repeated.")
PLUGIN = typer.Option((), "--plugin", help="A file with evaluators of your own; may be repeated.")
BY = typer.Option(
    ["environment"], "--by", help="What cohorts differ in: environment, split, step, seeds or state; may be repeated."
)
SPLIT = typer.Option("val", help="Split of a run: val, train or generalisation.")


def score(
    run: Path = typer.Argument(help="A run's folder, one policy's folder of an evaluation, or a JSONL file."),
    split: str = SPLIT,
    step: str = typer.Option("last", help="Step of a run: first, last, best, all or a number."),
    by: list[str] = BY,
    seeds: int = typer.Option(64, min=1, help="Seeds in a range, for --by seeds."),
    only: list[str] = typer.Option((), "--only", help="An evaluator; may be repeated.  \\[default: all]"),
    settings: list[str] = SET,
    plugin: list[str] = PLUGIN,
    judge: str = typer.Option(None, metavar="MODEL[@URL]", help="Ask this model for a judgement of every trajectory."),
    rubric: Path = typer.Option(None, help="A text file that says what the judge looks for."),
    out: Path = typer.Option(None, help="Folder for scores.json, scores.md and every trajectory's scores.jsonl."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
) -> None:
    """Score saved trajectories with local evaluators: progress, efficiency, loops, reasoning, reward hacking.

    It prints means over initial states with 95 % intervals, by cohort. It trains nothing and loads no model. Episodes
    are played again in a fresh environment if that is possible.
    """
    from ragen_lab.score import cohorts
    from ragen_lab.score.registry import run as evaluate
    from ragen_lab.score.saved import load

    from ragen_verl.extensions import use_files

    use_files(plugin)
    key = cohorts.by(by, seeds)
    saved = load(run, split=split, step=step)
    options = parsed(settings)
    names = list(only) or None
    if judge:
        options["judge"] = {**options.get("judge", {}), **judged(judge, rubric, saved.path)}
    elif rubric:
        raise RecipeError("--rubric is for a judge: add --judge MODEL@URL.")
    called = evaluate(saved.trajectories, names, options)
    found = cohorts.results(saved.trajectories, cohorts.measures(called), key)
    replayed = sum(one.replay is not None for one in saved.trajectories)
    found = {"trajectories": len(saved.trajectories), "replayed": replayed, **left_out(saved), **found}
    title = f"{run}: {len(saved.trajectories)} trajectories" + ("" if saved.step is None else f" of step {saved.step}")
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "scores.json").write_text(json.dumps(found, indent=2))
        (out / "scores.md").write_text(cohorts.markdown(found, title))
        with (out / "scores.jsonl").open("w") as file:
            for one in saved.trajectories:
                where = {"split": one.split, "env": one.env, "step": one.step, "seed": one.seed}
                row = {**where, "rollout_index": one.record["rollout_index"], "scores": one.scores}
                file.write(json.dumps(row) + "\n")
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    console().print(cohorts.table(found, title))
    if told := _remarks(found):
        console().print(told)
    if out:
        console().print(f"Written to {out}: scores.json, scores.md, scores.jsonl.")


def parsed(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """NAME.OPTION=VALUE texts as evaluator -> option -> value, read as YAML.

    Raises:
        RecipeError: a text of another form.
    """
    found: dict[str, dict[str, Any]] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        name, dot, option = key.partition(".")
        if not (equals and dot and name and option):
            raise RecipeError(f"--set {text!r} is not of the form NAME.OPTION=VALUE.")
        found.setdefault(name, {})[option] = yaml.safe_load(value)
    return found


def judged(judge: str, rubric: Path | None, saved: Path) -> dict[str, Any]:
    """The options of the judge."""
    model, at, url = judge.rpartition("@")
    found: dict[str, Any] = {"model": model if at else judge, "url": url if at else None}
    found["cache"] = str((saved if saved.is_dir() else saved.parent) / "judgements.jsonl")
    if rubric:
        if not rubric.is_file():
            raise RecipeError(f"There is no file {rubric} with a rubric.")
        found["rubric"] = rubric.read_text("utf-8")
    return found


def left_out(saved: Any) -> dict[str, int]:
    """The number of trajectories and lines that are left out of the numbers."""
    return {"excluded": saved.excluded, "broken_lines": saved.broken}


def _remarks(found: dict[str, Any]) -> str:
    """Remarks that a reader needs to interpret the numbers."""
    told = []
    if found["excluded"]:
        told.append(f"{found['excluded']} trajectories that environment or engine failed are left out.")
    if found["broken_lines"]:
        told.append(f"{found['broken_lines']} lines are no record and are left out.")
    if missing := found["trajectories"] - found["replayed"]:
        told.append(f"{missing} trajectories could not be played again, so nothing is measured against a plan there.")
    return " ".join(told)
