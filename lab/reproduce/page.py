"""docs/reproduction.md and the tables of an experiment for the terminal, made from protocols and results alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen_lab.markdown import table
from ragen_lab.reproduce.decisions import Decision
from ragen_lab.reproduce.estimates import Interval
from ragen_lab.reproduce.judgement import Judged, Judgement, LevelJudged, judge_result
from ragen_lab.reproduce.results import read
from ragen_lab.reproduce.sweep import Sweep

__all__ = ["COMPARISON_COLUMNS", "LEVEL_COLUMNS", "comparison_rows", "cost", "level_rows", "page", "states"]

_ORDER = (Decision.CONTRADICTED, Decision.CONFIRMED, Decision.UNDECIDED, Decision.NOT_RUN)
COMPARISON_COLUMNS = ("direction", "expected", "first", "second", "difference, 95 %", "p, Holm", "chance", "decision")
LEVEL_COLUMNS = ("run", "panel", "paper", "ours, 90 %", "band", "bias of a best", "decision")

_HEAD = """\
# Reproduction

Every claim of RAGEN (arXiv 2504.20073) and RAGEN-2 (arXiv 2604.06268) as an experiment that can fail, contradictions
first. Made by `ragen-verl reproduce --page` from the protocols in `recipes/experiments` (two CPU cores, a model of a
million parameters) and `recipes/tables` (the papers' sizes) and from the outcomes in `benchmarks/results/reproduction`;
edit those, not this page.

How it is decided. A protocol is written down before its runs: statistic, directions, seeds, rule. A difference is
taken state by state between runs with the same seed; its variance is clustered by seed and by state. A direction is
confirmed or contradicted where its p-value, corrected by Holm over the directions of the experiment, is 0.05 or less:
without others, where the paired 95 % interval leaves out 0. An experiment is confirmed where all directions that
decide are, and contradicted where one of them is; those in brackets do not decide. Where a rule has a look before all
seeds have run, the levels of its looks add up to 0.05. Collapse steps are compared by the
log-rank test. With fewer seeds than the protocol asks for nothing is decided. First and second are interquartile
means over runs with bootstrap intervals; chance is that of a run of the first side scoring higher than one of the
second. A published number is compared with the same statistic of ours: pass, if our 90 % interval lies in the band of
the paper's noise and our error, fail, if outside. The best of a run exceeds what the run can do; the bias given is
that of a flat rate of the published size.
"""


def page(sweeps: Sequence[Sweep], out: Path) -> str:
    """The whole page.

    Args:
        sweeps: sweeps with protocols.
        out: the folder with the results.

    Raises:
        RecipeError: a result is cut short.
    """
    results = {one.name: read(one.name, out) for one in sweeps}
    judged = [(one, judge_result(one, results[one.name])) for one in sweeps]
    judged.sort(key=lambda pair: _ORDER.index(pair[1].decision))
    lines = [_HEAD, "## All experiments", "", *_overview([found for _, found in judged]), ""]
    for decision in _ORDER[:-1]:
        chosen = [pair for pair in judged if pair[1].decision is decision]
        if chosen:
            lines += [f"## {str(decision).capitalize()}", ""]
        for sweep, found in chosen:
            lines += _section(sweep, found, results[sweep.name], out)
    return "\n".join(lines).rstrip("\n") + "\n"


def _overview(judged: Sequence[Judgement]) -> Iterator[str]:
    rows, known = [], states(judged)
    for one in judged:
        state = f"**{known[one.name]}**" if one.decision in _ORDER[:2] else known[one.name]
        rows.append((one.name, _sentence(one.protocol.claim), one.protocol.source, one.protocol.scale, state))
    yield from table(("experiment", "claim", "source", "scale", "state"), rows)


def states(judged: Sequence[Judgement]) -> dict[str, str]:
    """Name -> decision of each experiment, with the decisions of those that follow it; undecided ones are left out."""
    found = {one.name: str(one.decision) for one in judged}
    for one in judged:
        if one.protocol.follows in found and one.decision in _ORDER[:2]:
            found[one.protocol.follows] += f"; {one.name}: {one.decision}"
    return found


def _section(sweep: Sweep, found: Judgement, result: Mapping[str, Any], out: Path) -> Iterator[str]:
    protocol = found.protocol
    yield from (f"### {found.name}", "", f"{protocol.question} {_sentence(protocol.claim)}. ({protocol.source})", "")
    yield from (f"**{found.sentence}**", "", f"Rule: {protocol.rule}", "")
    if protocol.follows:
        yield from (f"Follows {protocol.follows}: the question that it left open, on other seeds.", "")
    counts = sorted(set(found.runs.values()))
    yield from (f"Runs of a variant that count: {counts[0]}" + (f" to {counts[-1]}." if counts[1:] else "."), "")
    yield from table(COMPARISON_COLUMNS, comparison_rows(found))
    yield ""
    if notes := [_note(one, protocol.source) for one in found.comparisons if one.comparison.claim]:
        yield from (*notes, "")
    if found.levels:
        yield from (*table(LEVEL_COLUMNS, level_rows(found.levels)), "", f"Noise: {protocol.noise_from}", "")
    yield from (found.warnings.sentence, "")
    for one in result["left_out"]:
        yield f"- Left out: {one['variant']}, seed {one['seed']}, {one['state']}. {one['why']}"
    if result["left_out"]:
        yield ""
    if (out / f"{found.name}.png").exists():
        yield from (f"![curves](../benchmarks/results/reproduction/{found.name}.png)", "")


def _note(one: Judged, source: str) -> str:
    comparison = one.comparison
    by = f"; by {one.statistic}" if comparison.statistic else ""
    return f"- {comparison.name}: {comparison.claim} ({comparison.source or source}{by})"


def comparison_rows(found: Judgement) -> list[tuple[str, ...]]:
    """A row with `COMPARISON_COLUMNS` for each comparison; names of those that do not decide are in brackets."""
    return [_comparison(one) for one in found.comparisons]


def _comparison(one: Judged) -> tuple[str, ...]:
    comparison = one.comparison
    first, second = one.sides
    against = _interval(second) if comparison.than is None else f"{comparison.than:g}"
    decision = str(one.decision)
    if one.missing and one.decision is not Decision.NOT_RUN:
        decision += f" ({max(one.missing.values())} seeds missing)"
    return (
        comparison.name if comparison.decides else f"({comparison.name})",
        comparison.expected,
        _interval(first),
        against,
        _interval(one.effect, signed=True),
        "-" if one.p_value is None else "< 0.001" if one.p_value < 0.001 else f"{one.p_value:.3f}",
        _interval(one.improvement),
        decision,
    )


def level_rows(levels: Sequence[LevelJudged]) -> list[tuple[str, ...]]:
    """A row with `LEVEL_COLUMNS` for each published number."""
    return [
        (
            one.variant,
            one.panel,
            f"{one.published:.3f}" + (" (best)" if one.is_best else ""),
            _interval(one.ours),
            f"{one.band[0]:.3f} to {one.band[1]:.3f}" if one.band else "-",
            "-" if one.bias is None else f"{one.bias:+.3f}",
            str(one.decision),
        )
        for one in levels
    ]


def _interval(one: Interval | None, signed: bool = False) -> str:
    """An interval as `0.25 [0.20, 0.30]`; only its value if it has no ends, and "-" without one."""
    if one is None:
        return "-"
    style = "+.3g" if signed else ".3g"
    if one.low is None or one.high is None:
        return f"{one.value:{style}}"
    return f"{one.value:{style}} [{one.low:{style}}, {one.high:{style}}]"


def cost(sweep: Sweep, result: Mapping[str, Any]) -> str:
    """The time of all runs of an experiment together: measured on finished runs, else estimated by the protocol."""
    one, runs = sweep.protocol.cost, len(sweep.variants) * len(sweep.seeds)
    hours = one.gpu_hours if one.minutes is None else one.minutes / 60
    unit, how = ("GPU h" if one.minutes is None else "h on 2 cores"), "estimated"
    if seconds := [run["seconds"] for run in result["runs"]]:
        hours, how = sum(seconds) / len(seconds) / 3600, "measured"
    return f"{runs} runs, {runs * hours:,.0f} {unit}, {how}"


def _sentence(text: str) -> str:
    return text.rstrip(".")
