"""The verdict as a table for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ragen_verl.diagnostics.registry import Evidence
from ragen_verl.diagnostics.verdict import TOO_EARLY, Verdict

__all__ = ["verdict_table"]

_STYLES = {"healthy": "green", TOO_EARLY: "white", "note": "cyan", "warning": "yellow", "collapsed": "red"}


def verdict_table(verdict: Verdict, indicators: bool = False) -> RenderableType:
    """A line of summary, a table with a row for each cause, and on demand one with a row for each indicator.

    Args:
        verdict: the verdict on the run so far.
        indicators: add the indicators with their baselines.
    """
    parts: list[RenderableType] = [
        Text.assemble((verdict.status, f"bold {_STYLES[verdict.status]}"), _sentence(verdict))
    ]
    if verdict.findings:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for title in ("cause", "step", "evidence", "what to change"):
            table.add_column(title, no_wrap=title in ("cause", "step"))
        for finding in verdict.findings:
            name = finding.cause if finding.warns else f"{finding.cause} (note)"
            table.add_row(name, str(finding.step), _words(finding.evidence), finding.advice or "nothing")
        parts.append(table)
    if indicators and verdict.readings:
        parts.append(_indicators(verdict))
    return Group(*parts)


def _sentence(verdict: Verdict) -> str:
    if verdict.step < 0:
        return ": nothing was logged yet."
    text = f" after step {verdict.step}"
    if verdict.collapsed:
        step, evidence = verdict.collapsed
        text += f", performance lost at step {step} ({_words(evidence)})"
        if not verdict.findings:
            text += ", and no indicator says why"
    if verdict.primary and verdict.primary.warns:
        text += f", primary cause {verdict.primary.cause} since step {verdict.primary.step}"
    if verdict.status == TOO_EARLY:
        text += ", there are not enough steps to compare with the first ones"
    return text + "."


def _words(evidence: Evidence) -> str:
    before = "" if evidence.baseline is None else f"{evidence.baseline:.3g} -> "
    words = f" ({evidence.words})" if evidence.words else ""
    return f"{evidence.metric} {before}{evidence.value:.3g}{words}"


def _indicators(verdict: Verdict) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("indicator", "what it is", "start", "now"):
        table.add_column(title, no_wrap=True, justify="right" if title in ("start", "now") else "left")
    for one in verdict.readings:
        table.add_row(one.metric, one.meaning, f"{one.baseline:.3g} ± {one.std:.2g}", f"{one.value:.3g}")
    return table
