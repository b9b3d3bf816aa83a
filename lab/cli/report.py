"""`ragen-verl report`."""

from __future__ import annotations

from pathlib import Path

import typer

from ragen_verl.cli.console import console

__all__ = ["TRAJECTORIES", "report"]

TRAJECTORIES = typer.Option(2000, min=1, help="About how many trajectories the page holds.")


def report(
    runs: list[Path] = typer.Argument(
        metavar="RUN...", help="Folders of runs (ragen.run.dir), finished or not, or of evaluations."
    ),
    out: Path = typer.Option(None, help="File to write.  \\[default: RUN/report.html; of several runs report.html]"),
    trajectories: int = TRAJECTORIES,
) -> None:
    """Write one HTML file of a run, an evaluation, or several side by side: result, curves, settings, trajectories.

    The page needs no network and no server. Of a long run it shows whole groups of the steps that matter most.
    """
    from ragen_lab.report import opened, render

    read = opened(runs)
    page = render(read, trajectories)
    target = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(page)
    for run in read:
        for note in run.notes:
            console().print(f"{run.name}: {note}", soft_wrap=True)
    console().print(f"Written to {target} ({len(page) / 1e6:.1f} MB).", soft_wrap=True)
