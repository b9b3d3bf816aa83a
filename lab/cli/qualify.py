"""`ragen-verl qualify`."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from ragen_verl.cli.console import console
from ragen_verl.errors import RecipeError

__all__ = ["EPILOG", "qualify"]

_COLOURS = {"PASS": "green", "FAIL": "bold red", "SKIPPED": "yellow"}
EPILOG = """Examples:

ragen-verl qualify --minutes 20

ragen-verl qualify --device cpu --only engine --only memory

ragen-verl qualify --estimate paper/sokoban_starpo_s hardware=gpu_h100_8 --card h100"""


def qualify(
    overrides: list[str] = typer.Argument(None, help="Hydra overrides of the recipe of --estimate."),
    minutes: int = typer.Option(
        5, "--minutes", help="About how long it takes: 5, 20 or 60; more minutes measure more."
    ),
    device: str = typer.Option(None, "--device", help="cuda or cpu.  \\[default: cuda if there is a GPU]"),
    only: list[str] = typer.Option(
        None, "--only", metavar="PART", help="versions, engine, memory, throughput, vllm, learning, steps; repeatable."
    ),
    out: Path = typer.Option(None, "--out", help="Folder of the results; an earlier one is continued."),
    estimate: str = typer.Option(
        None,
        "--estimate",
        metavar="RECIPE",
        help="Compute seconds and memory of a recipe's step instead; runs nothing.",
    ),
    card: str = typer.Option("h100", "--card", help="The GPU of --estimate: h100, h200, a100-80, l40s, 4090, ..."),
) -> None:
    """Check what this machine can run, whether its numbers are right, and how fast: one JSON file and one page.

    It needs no network and installs nothing: models have random weights in the recipes' shapes, and the nano model is
    trained. Every part runs in its own process with a time limit. With the same --out finished parts are kept, unless
    versions, device or minutes differ. The exit code is 1 if a part failed.
    """
    if estimate:
        return _estimate(estimate, overrides or [], card)
    if overrides:
        raise RecipeError(f"{overrides[0]!r} changes a recipe, and only --estimate RECIPE takes one.")
    from ragen_lab.qualify.findings import Outcome, Status
    from ragen_lab.qualify.kit import Kit, check
    from ragen_lab.qualify.page import render

    device, parts = check(device, minutes, only or [])
    out = (out or Path("runs") / f"qualify-{datetime.now():%Y%m%d-%H%M%S}").resolve()
    kit, screen = Kit(out, device, minutes), console()

    def said(one: Outcome) -> None:
        head = (str(one.status), _COLOURS[one.status])
        screen.print(Text.assemble(head, f" {one.part} ({one.seconds:.0f} s): {one.sentence}"))

    try:
        with screen.status(Text(f"{', '.join(parts)} on {device} ...")):
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
            status = Text(str(one.status), _COLOURS[one.status])
            table.add_row(one.part, status, f"{one.seconds:.0f}", one.sentence)
        screen.print(table)
        screen.print(f"{out / 'qualify.html'} and {out / 'qualify.json'}", soft_wrap=True)
    raise typer.Exit(int(any(one.status is Status.FAIL for one in kit.outcomes())))


def _estimate(recipe: str, overrides: list[str], name: str) -> None:
    """Print a step's parts and its memory."""
    from ragen_lab.qualify.cards import card_of
    from ragen_lab.qualify.estimate import ASSUMED
    from ragen_lab.qualify.estimates_page import estimated

    card = card_of(name)
    found = estimated(recipe, overrides, card)
    work, need, screen = found.work, found.need, console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("part", "roofline, s", "bound by", "estimate, s"):
        table.add_column(column, no_wrap=True, justify="right" if column.endswith("s") else "left")
    for part in found.parts:
        table.add_row(part.name, f"{part.roofline:.2f}", part.bound, f"{part.estimate:.1f}")
    table.add_row("step", f"{found.roofline:.2f}", "", f"{found.seconds:.1f}", style="bold")
    screen.print(
        f"{recipe} on {found.gpus} x {name}: {work.rows} trajectories of {work.length:,} tokens, {work.kept} trained."
    )
    screen.print(table)
    moments = ((need.generating, "generating"), (need.pushing, "pushing weights"), (need.updating, need.moment))
    fits = "fits" if need.fits(card.gb) else "does not fit"
    screen.print(
        f"Memory, GB of {card.gb:.1f}: {', '.join(f'{gb:.1f} {moment}' for gb, moment in moments)}; {need.host:.0f} in "
        f"main memory. It {fits}; the engine's cache holds {need.cached} rows at their longest."
    )
    screen.print(f"Computed, nothing was measured. Assumed: {ASSUMED}", style="dim")
