"""`ragen-verl runs`: the runs below a folder, and two of them compared."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from ragen_verl.cli.console import console

__all__ = ["compare", "group", "list_runs"]

group = typer.Typer(no_args_is_help=True, help="List runs with their state and result; compare two of them.")

_JSON = typer.Option(False, "--json", help="Print JSON instead of a table.")


@group.command("list")
def list_runs(
    folder: Path = typer.Argument(Path("runs"), help="Where to look, with all folders below it."),
    as_json: bool = _JSON,
) -> None:
    """List the runs below a folder: recipe, state, steps, held-out success with its interval, verdict.

    For each run that is not finished it prints the command that resumes it.
    """
    from ragen_lab.report import overview

    records = [overview.record(run, folder) for run in overview.find(folder)]
    if as_json:
        typer.echo(json.dumps(records, indent=2))
        return
    console().print(overview.table(records))
    for one in records:
        why = f" ({one['cause']})" if one["cause"] else ""
        if one["continue"]:
            console().print(f"{one['run']} is {one['state']}{why}. Go on:", soft_wrap=True)
            console().print(f"  {one['continue']}", soft_wrap=True)
        elif why:
            console().print(f"{one['run']} is {one['state']}{why}.", soft_wrap=True)


@group.command()
def compare(
    run: Path = typer.Argument(help="A run's folder."),
    other: Path = typer.Argument(help="Another run's folder."),
    as_json: bool = _JSON,
) -> None:
    """Show what differs between two runs: resolved settings, versions, results.

    Use it first when a result cannot be repeated. Equal values are left out.
    """
    from ragen_lab.report import overview
    from ragen_lab.report.reading import read_run

    found = overview.differences(read_run(run), read_run(other))
    if as_json:
        typer.echo(json.dumps({name: [list(row) for row in rows] for name, rows in found.items()}, indent=2))
        return
    for table in overview.difference_tables(found, (str(run), str(other))):
        console().print(table)
    if not any(name.startswith("settings") for name in found):
        console().print("The settings are the same.")
    if "versions" not in found:
        console().print("The versions are the same.")
