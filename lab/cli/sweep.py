"""`ragen-verl sweep`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from ragen_verl.cli.console import console
from ragen_verl.cli.resume import YES, confirm
from ragen_verl.errors import RecipeError

__all__ = ["sweep"]


def sweep(
    file: Path = typer.Argument(
        help="The sweep's YAML file, such as benchmarks/sweeps/stability.yaml, or one of the package: tables/NAME."
    ),
    only: list[str] = typer.Option((), "--only", help="A variant to run; may be repeated.  \\[default: all]"),
    dry_run: bool = typer.Option(False, "--dry-run", help="Run nothing, print the commands of the missing runs."),
    runs: Path = typer.Option(Path("runs/sweeps"), help="The folder of the runs; finished ones are not repeated."),
    out: Path = typer.Option(Path("benchmarks/results"), help="Where the JSON and the picture go."),
    yes: bool = YES,
    report_only: bool = typer.Option(False, "--report-only", help="Run nothing; report the runs that have begun."),
) -> None:
    """Train every variant of a sweep with every seed, one after the other, and compare them.

    The same command resumes an interrupted sweep. The package's sweeps, which `ragen-verl recipes
    --tables` lists, rerun experiments of papers and print their numbers next to yours.
    """
    from ragen_lab.reproduce import sweep as sweeps
    from ragen_lab.reproduce.panels import sweep_figure

    wanted = sweeps.Sweep.read(file)
    if dry_run:
        for command in sweeps.commands(wanted, runs, only):
            typer.echo(command)
        return
    if not report_only:
        _check(wanted, runs, only, yes)
    failed = 0 if report_only else sweeps.run(wanted, runs, console(), only)
    found = sweeps.results(wanted, runs)
    if not found["runs"]:
        console().print(f"No run of {wanted.name} has begun in {runs}.")
        raise typer.Exit(1)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{wanted.name}.json").write_text(json.dumps(found, indent=1) + "\n")
    console().print(sweeps.table(wanted, found))
    if wanted.published:
        console().print(sweeps.comparison(wanted, found))
    console().print(f"{out / wanted.name}.json and {sweep_figure(found, out / f'{wanted.name}.png')}")
    raise typer.Exit(1 if failed else 0)


def _check(sweep: Any, runs: Path, only: list[str], yes: bool) -> None:
    """Check every missing run before the first of them starts, and say for each variant what an episode can need."""
    from ragen_verl.cli.fit import fit
    from ragen_verl.cli.prepare import prepare

    console().print("Checking every run ...")
    told = set()
    for variant, seed, folder in sweep.runs(runs, only):
        if folder.summary.exists():
            continue
        try:
            prepared = prepare(sweep.recipe, sweep.overrides_of(variant, seed, folder))
            confirm(prepared, yes)
        except RecipeError as error:
            raise RecipeError(f"{sweep.name}, variant {variant}, seed {seed}: {error}") from error
        if variant not in told and (sentence := fit(prepared.config)):
            typer.echo(f"{variant}: {sentence}", err=True)
        told.add(variant)
