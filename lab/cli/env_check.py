"""`ragen-verl env check`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from ragen_verl.cli.console import console
from ragen_verl.cli.env_arguments import ID, KWARGS, parse_kwargs

if TYPE_CHECKING:
    from ragen_lab.checker import Report

__all__ = ["check_environment"]

_STYLES = {"kept": "green", "broken": "bold red", "not checked": "yellow"}


def check_environment(
    id: str = ID,
    kwargs: list[str] = KWARGS,
    episodes: int = typer.Option(None, min=1, help="Episodes scored for each player.  \\[default: 20]"),
    quick: bool = typer.Option(False, "--quick", help="Check every rule with small numbers."),
    skip: list[str] = typer.Option((), help="A rule that is not checked; may be repeated."),
    tokenizer: str = typer.Option(
        "nano", help="What counts tokens: a folder with tokenizer.json, or a model of the hub."
    ),
    limit: float = typer.Option(10.0, help="Seconds that one call may take."),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON."),
) -> None:
    """Check an environment against the rules that training relies on, score it and measure it.

    The same seed gives the same episode: in this process, in another, next to 100 others in threads. Rollouts of a
    group start in the same state; rewards are finite; observations are text; copies continue in the same way; no text
    makes it raise or hang.
    The exit code is 1 if a rule is broken.
    """
    from ragen_lab.checker import FULL, QUICK, Subject, check

    sizes: dict[str, Any] = {"limit": limit} | ({"episodes": episodes} if episodes else {})
    profile = dataclasses.replace(QUICK if quick else FULL, **sizes)
    with console(stderr=True).status("building it ...") as status:
        report = check(
            Subject.of(id, **parse_kwargs(kwargs or [])),
            profile,
            skip=skip,
            tokenizer=tokenizer,
            backstop=True,
            progress=_shown(status),
        )
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        _show(console(), report)
    raise typer.Exit(int(not report.ok))


def _shown(status: Status) -> Callable[[str, int], None]:
    """The display of the current rule and the calls so far: in place on a terminal, otherwise one line per rule."""
    lines: set[str] = set()

    def progress(rule: str, calls: int) -> None:
        status.update(Text(f"{rule} ... {calls:,} calls"))
        if not sys.stderr.isatty() and rule not in lines:
            lines.add(rule)
            typer.echo(f"{rule} ...", err=True)

    return progress


def _show(out: Console, report: Report) -> None:
    """Print the rules and the facts."""
    from ragen_lab.checker.rules import describe

    arguments = "".join(f" {key}={value}" for key, value in report.kwargs.items())
    out.print(Text.assemble((report.label, "bold"), arguments, "\n"))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, verdict in report.rules.items():
        table.add_row(name, Text(verdict.word, _STYLES[verdict.word]), verdict.unchecked or describe(name))
        for problem in verdict.problems:
            table.add_row("", "", Text(problem, "red"))
    out.print(table)
    out.print()
    _facts(out, report.facts)
    for note in report.notes:
        out.print(note, style="yellow")
    broken = f"Broken: {', '.join(report.broken)}."
    out.print("No rule is broken." if report.ok else broken, style="green" if report.ok else "bold red")


def _facts(out: Console, facts: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for player, score in facts.get("scores", {}).items():
        table.add_row(player, _score(score))
    if "starts" in facts:
        table.add_row("starts", "{distinct} different of {seeds} seeds".format(**facts["starts"]))
    if "rollouts" in facts:
        same = "differ" if facts["rollouts"]["transitions_differ"] else "are the same"
        table.add_row("rollouts", f"of one group: their transitions {same}")
    if "milliseconds" in facts:
        times = facts["milliseconds"]
        for name in ("reset", "step"):
            table.add_row(name, ", ".join(f"{key} {value:.3g} ms" for key, value in times[name].items()))
        table.add_row("speed", f"{facts['steps_per_second']:,.0f} steps a second, built in {times['build']:.3g} ms")
    if "tokens" in facts:
        words = "an observation {mean:.0f} on average, {max} at most; the first prompt {first_prompt}"
        table.add_row(f"tokens ({facts['tokens']['tokenizer']})", words.format(**facts["tokens"]))
    if table.row_count:
        out.print(table)
        out.print()


def _score(score: dict[str, Any] | None) -> str:
    if score is None:
        return "no plan is known"
    error = "" if score["error"] is None else f" ± {score['error']:.2g}"
    stops = ", ".join(f"{count} {reason}" for reason, count in sorted(score["stops"].items()))
    return f"success {score['success']:.0%}, return {score['return']:.3g}{error} over {score['episodes']}: {stops}"
