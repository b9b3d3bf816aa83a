"""`ragen-verl qualify`."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from ragen_verl.cli.console import console

__all__ = ["EPILOG", "qualify"]

_COLOURS = {"PASS": "green", "FAIL": "bold red", "SKIPPED": "yellow"}
EPILOG = """Examples:

ragen-verl qualify --minutes 20

ragen-verl qualify --device cpu --only engine --only memory"""


def qualify(
    minutes: int = typer.Option(
        5, "--minutes", help="About how long it takes: 5, 20 or 60; more minutes measure more."
    ),
    device: str = typer.Option(None, "--device", help="cuda or cpu.  \\[default: cuda if there is a GPU]"),
    only: list[str] = typer.Option(
        None, "--only", metavar="PART", help="versions, engine, memory, throughput, vllm, learning, steps; repeatable."
    ),
    out: Path = typer.Option(None, "--out", help="Folder of the results; an earlier one is continued."),
) -> None:
    """Check what this machine can run, whether its numbers are right, and how fast: one JSON file and one page.

    It needs no network and installs nothing: models have random weights in the recipes' shapes, and the nano model is
    trained. Every part runs in its own process with a time limit. With the same --out finished parts are kept, unless
    versions, device or minutes differ. The exit code is 1 if a part failed.
    """
    from ragen_lab.qualify.kit import Kit, check
    from ragen_lab.qualify.outcome import Outcome, Status
    from ragen_lab.qualify.page import render

    device, parts = check(device, minutes, only or [])
    out = (out or Path("runs") / f"qualify-{datetime.now():%Y%m%d-%H%M%S}").resolve()
    kit, screen = Kit(out, device, minutes), console()

    def said(one: Outcome) -> None:
        colour = _COLOURS[one.status]
        screen.print(f"[{colour}]{one.status}[/] {one.part} ({one.seconds:.0f} s): {escape(one.sentence)}")

    try:
        with screen.status(f"{', '.join(parts)} on {device} ..."):
            kit.run(parts, said)
    except KeyboardInterrupt:
        screen.print("Stopped: what was finished is kept.")
        raise typer.Exit(130) from None
    finally:
        report = kit.report()
        (out / "qualify.json").write_text(json.dumps(report, indent=1) + "\n")
        (out / "qualify.html").write_text(render(report), "utf-8")
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("part", "result", "seconds"):
            table.add_column(column, no_wrap=True)
        table.add_column("what was found")
        for one in kit.outcomes():
            table.add_row(
                one.part, f"[{_COLOURS[one.status]}]{one.status}[/]", f"{one.seconds:.0f}", escape(one.sentence)
            )
        screen.print(table)
        screen.print(f"{out / 'qualify.html'} and {out / 'qualify.json'}", markup=False, soft_wrap=True)
    raise typer.Exit(int(any(one.status is Status.FAIL for one in kit.outcomes())))
