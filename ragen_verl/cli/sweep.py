"""`ragen-verl sweep`."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from ragen_verl.cli.app import app, console


@app.command()
def sweep(
    file: Path = typer.Argument(help="The sweep's YAML file, such as benchmarks/sweeps/stability.yaml."),
    runs: Path = typer.Option(Path("runs/sweeps"), help="Where runs are kept; what is there is not run again."),
    out: Path = typer.Option(Path("benchmarks/results"), help="Where the JSON and the picture go."),
    report_only: bool = typer.Option(False, "--report-only", help="Run nothing, report what is there."),
) -> None:
    """Train every variant of a sweep with every seed, one after the other, and compare them.

    The same command takes an interrupted sweep up where it stopped.
    """
    from ragen_verl import sweep as sweeps
    from ragen_verl.report.sweep import sweep_figure

    wanted = sweeps.Sweep.read(file)
    failed = 0 if report_only else sweeps.run(wanted, runs, console())
    found = sweeps.results(wanted, runs)
    if not found["runs"]:
        console().print(f"No run of {wanted.name} has begun in {runs}.")
        raise typer.Exit(1)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{wanted.name}.json").write_text(json.dumps(found, indent=1) + "\n")
    console().print(sweeps.table(wanted, found))
    console().print(f"{out / wanted.name}.json and {sweep_figure(found, out / f'{wanted.name}.png')}")
    raise typer.Exit(1 if failed else 0)
