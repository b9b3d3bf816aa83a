"""A run in the terminal: the live view of `watch`, and the episodes that `show` prints."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ragen_lab.report.about import duration, held_out, phases, verdict
from ragen_lab.report.curves import PANELS, marks
from ragen_lab.report.reading import INTERRUPTED, Run
from ragen_lab.report.text import visible
from ragen_lab.report.trajectories import EXCLUDED, SOLVED, finite
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ragen_verl.names import HELD_OUT_SUCCESS, STEP_SECONDS, TEST_SECONDS, TRAIN_SUCCESS

__all__ = ["beside", "dashboard", "episode", "line", "sparkline"]

_STATES = {"running": "green", "finished": "green", "failed": "bold red", INTERRUPTED: "yellow"}
_VERDICTS = {"healthy": "green", "note": "green", "warning": "yellow", "collapsed": "bold red"}
_OUTCOMES = {SOLVED: "green", EXCLUDED: "bright_black"}
_BARS = "▁▂▃▄▅▆▇█"
_PLOT = 40  # columns
_CALL = 200  # characters of what a tool answered


# -- a run ------------------------------------------------------------------------------------------------------------


def dashboard(run: Run) -> RenderableType:
    """The view of `watch`: progress of the run, its curves, the verdict, and the times of the phases."""
    state, status = run.state(), str(run.verdict.get("status") or "not yet")
    head = Text.assemble((visible(run.recipe), "bold"), f"  {visible(run.folder.path)}  ", (state, _STATES[state]))
    parts: list[RenderableType] = [head, _progress(run, state), Text(), _curves(run), Text()]
    parts.append(Text.assemble("verdict: ", (visible(verdict(run) or status), _VERDICTS.get(status, "white"))))
    for mark in marks(run):
        why = visible(f"  step {mark.step}: {mark.cause} ({mark.level}) {mark.words}")
        parts.append(Text(why, style=_VERDICTS.get(mark.level, "yellow")))
        if mark.advice:
            parts.append(Padding(Text(visible(mark.advice), style="dim"), (0, 0, 0, 4)))
    if spent := phases(run):
        whole = sum(spent.values())
        shares = sorted(spent.items(), key=lambda one: -one[1])
        parts.append(Text("time: " + ", ".join(f"{name} {took / whole:.0%}" for name, took in shares), style="dim"))
    parts += [Text(visible(note), style="yellow") for note in run.notes if run.rows]
    if run.cause():
        parts.append(Text(f"ended early (error.txt): {visible(run.cause())}", _STATES[state]))
    return Group(*parts)


def line(run: Run, row: Mapping[str, Any]) -> str:
    """A step on one plain line, for `watch` where there is no terminal."""
    shown = [("training success", TRAIN_SUCCESS), ("held-out success", HELD_OUT_SUCCESS)]
    rates = [f"{name} {row[key]:.1%}" for name, key in shown if finite(row.get(key))]
    took = [f"{row[STEP_SECONDS]:.1f} s"] if finite(row.get(STEP_SECONDS)) else []
    return f"step {row['step']}/{run.setting('trainer.total_training_steps', '?')}: {', '.join(rates + took)}"


def _progress(run: Run, state: str) -> RenderableType:
    total = run.setting("trainer.total_training_steps")
    if not run.rows:
        phase = run.folder.phase
        return Text(visible(phase.read_text("utf-8", "replace")) if phase.is_file() else "not begun", style="dim")
    words = [f"step {run.step}" + (f" of {total}" if finite(total) else "")]
    last = [row for row in run.rows[-5:] if finite(row.get(STEP_SECONDS))]
    if last:
        each = sum(row[STEP_SECONDS] + row.get(TEST_SECONDS, 0.0) for row in last) / len(last)
        words.append(f"{each:.1f} s a step")
        if state == "running" and finite(total) and total > run.step:
            words.append(f"about {duration(each * (total - run.step))} to go")
    if state != "finished" and finite(run.rows[-1].get("time")):
        words.append(f"last step {duration(max(0.0, time.time() - run.rows[-1]['time']))} ago")
    bar = ProgressBar(total=float(total) if finite(total) else 1.0, completed=float(run.step), width=_PLOT)
    grid = Table.grid(padding=(0, 2))
    grid.add_row(bar, Text(", ".join(words)))
    return grid


def _curves(run: Run) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for title in ("", "", "first", "now", "lowest", "highest"):
        table.add_column(title, justify="left" if not title else "right", no_wrap=True)
    ends = {one.step: one for one in held_out(run)}
    for panel in PANELS:
        for name, metric in panel.lines.items():
            points = run.series(metric)
            if not points:
                continue
            values = [value for _, value in points]
            cells = [f"{one:.1%}" if panel.percent else f"{one:.3g}" for one in (values[0], values[-1], *_ends(values))]
            title = panel.title if len(panel.lines) == 1 else f"{panel.title}, {name}"
            last = ends.get(points[-1][0]) if metric == HELD_OUT_SUCCESS else None
            if last and last.low is not None and last.high is not None:
                cells[1] += f" ({last.low:.0%} to {last.high:.0%})"
            table.add_row(Text(title), Text(sparkline(values), style="cyan"), *cells)
    return table


def sparkline(values: Sequence[float], width: int = _PLOT) -> str:
    """Values as blocks between their lowest and highest; more than `width` values are averaged."""
    if len(values) > width:
        edges = [round(i * len(values) / width) for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = _ends(values)
    return "".join(_BARS[round((len(_BARS) - 1) * (value - low) / (high - low or 1.0))] for value in values)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


# -- an episode -------------------------------------------------------------------------------------------------------


def episode(shown: Mapping[str, Any], where: str) -> RenderableType:
    """A normalised trajectory, turn by turn.

    Args:
        shown: as `normalise` returns it.
        where: split and step, for the headline.
    """
    style = _OUTCOMES.get(shown["outcome"], "red")
    head = Text.assemble(
        (visible(shown["env"]), "bold"),
        f"  {where}, seed {shown['seed']}, sample {shown['rollout_index']}  ",
        (visible(shown["stop_reason"]), style),
        f"  return {_figure(shown['return'])}",
        "" if shown["kept"] is not False else "  not kept by the filter",
    )
    parts: list[RenderableType] = [Rule(style="dim"), head]
    if shown["error"]:
        parts.append(Text(visible(shown["error"]), style="red"))
    for number, turn in enumerate(shown["turns"], start=1):
        parts.append(_turn(number, turn))
    if shown["turns"] and shown["turns"][-1]["observation"]:
        parts.append(Panel(Text(visible(shown["turns"][-1]["observation"])), title="at the end", title_align="left"))
    return Group(*parts)


def beside(episodes: Sequence[RenderableType]) -> RenderableType:
    """Episodes of one state in columns of the same width."""
    if len(episodes) == 1:
        return episodes[0]
    grid = Table.grid(padding=(0, 1), expand=True)
    for _ in episodes:
        grid.add_column(ratio=1)
    grid.add_row(*episodes)
    return grid


def _turn(number: int, turn: Mapping[str, Any]) -> RenderableType:
    figures = [f"{name} {_figure(turn[name])}" for name in ("reward", "penalty", "advantage") if turn[name] is not None]
    figures += [f"{name} {_figure(part)}" for name, part in turn["rewards"].items()]
    wrong = [("format_ok", "format wrong"), ("valid", "invalid action"), ("effective", "no effect")]
    flags = [words for name, words in wrong if not turn[name]]
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(ratio=2)
    grid.add_column(ratio=3)
    said = Text()
    if turn["reasoning"]:
        said.append(visible(turn["reasoning"]) + "\n", style="italic")
    actions = [visible(one) for one in turn["actions"]]
    if actions:
        said.append("→ ")
        executed = len(turn["executed"])
        said.append(" || ".join(actions[:executed]), style="bold cyan")
        said.append("".join(f" || {one}" for one in actions[executed:]), style="dim strike")
    else:
        said.append(visible(turn["response"]) or "no answer", style="dim")
    for call in turn["calls"]:
        took = "" if call["seconds"] is None else f" ({_figure(call['seconds'])} s)"
        answer = visible(call["error"] or call["result"]).partition("\n")[0][:_CALL]
        said.append(f"\n{visible(call['name'])}{took}: ", style="cyan")
        said.append(answer, style="red" if call["error"] else "dim")
    grid.add_row(Text(visible(turn["state"])), said)
    title = visible(f"turn {number}, {', '.join([*figures, *flags])}")
    return Panel(grid, title=Text(title, style="yellow" if flags else ""), title_align="left", border_style="dim")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
