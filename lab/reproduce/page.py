"""docs/reproduction.md and the tables of an experiment for the terminal, made from protocols and results alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen_lab.markdown import table
from ragen_lab.reproduce.decisions import Decision
from ragen_lab.reproduce.estimates import Interval
from ragen_lab.reproduce.front import LIMITS, findings, summary
from ragen_lab.reproduce.judgement import Judged, Judgement, LevelJudged, judge_result
from ragen_lab.reproduce.regime import regimes, warned
from ragen_lab.reproduce.results import earlier_result
from ragen_lab.reproduce.sensitivity import sensitivity
from ragen_lab.reproduce.sweep import Sweep

__all__ = ["COMPARISON_COLUMNS", "LEVEL_COLUMNS", "comparison_rows", "cost", "level_rows", "page", "states"]

_ORDER = (Decision.CONTRADICTED, Decision.CONFIRMED, Decision.UNDECIDED, Decision.PILOT, Decision.NOT_RUN)
COMPARISON_COLUMNS = (
    "direction", "expected", "first", "second", "difference, 95 %", "p, Holm", "p, exact", "chance", "left", "decision"
)  # fmt: skip
LEVEL_COLUMNS = ("run", "panel", "paper", "ours, 90 %", "band", "bias of a best", "decision")

_HEAD = """\
# Reproduction

What was found when claims of RAGEN (arXiv 2504.20073) and RAGEN-2 (arXiv 2604.06268) were asked again, on two CPU
cores with a model of a million parameters. A difference is the first side less the second with its 95 % interval; p
is corrected for the other questions that decide; "exact" is over all exchanges of runs. Made by `ragen-verl reproduce
--report-only` from `recipes/experiments`, `recipes/tables` and `benchmarks/results/reproduction`; edit those, not
this page.
"""

_RULES = """\
A protocol is written down before its runs: statistic, directions, seeds, rule. A difference is taken state by state
between runs with the same seed, its variance clustered by seed and by state; unpaired differences have Welch's test.
A direction is confirmed or contradicted where its p-value, corrected by Holm over all directions that decide, run or
not, is at most the level, 0.05; those in brackets do not decide and are not corrected. Beside a t-test stands the
exact p-value over all exchanges of runs; with five pairs it cannot be below 0.062, with five runs of each side,
unpaired, not below 0.008. Where a protocol has fewer least seeds than seeds it has a look at both, and the levels of
its looks add up to 0.05. An experiment is confirmed where all directions that decide are, and contradicted where one
of them is. "Left" is the chance that the seeds left decide, if the trend so far is the truth. Collapse steps are
compared by the log-rank test over all exchanges of runs, the share of runs that collapse by the exact binomial test.
First and second are interquartile means over runs with bootstrap intervals; chance is that of a run of the first side
scoring higher than one of the second. A published number is compared with the same statistic of ours: pass, if our 90
% interval lies in the band of the paper's noise and our error, fail, if outside; the bias of a best is that of a flat
rate of the published size. A result keeps its protocol, and one that was changed later says so under "Changed".
"""


_SYNTHETIC = """\
On synthetic healthy runs it warns in less than one of a hundred ([how often the verdict is wrong](measured.md#how-
often-the-verdict-is-wrong)). Real runs of this size are noisier than those: there a warning says little. Thresholds
were not set on these runs."""


def page(sweeps: Sequence[Sweep], out: Path) -> str:
    """The whole page.

    Args:
        sweeps: sweeps with protocols.
        out: the folder with the results.

    Raises:
        RecipeError: a result is cut short.
    """
    results = {one.name: earlier_result(one, out) for one in sweeps}
    judged = [(one, judge_result(one, results[one.name])) for one in sweeps]
    judged.sort(key=lambda pair: _ORDER.index(pair[1].decision))
    found = [one for _, one in judged]
    there = [pair for pair in judged if pair[1].decision is not Decision.NOT_RUN]
    lines = [
        _HEAD,
        "## What was found",
        "",
        *findings(found),
        "",
        LIMITS,
        "",
        "## In one table",
        "",
        *summary(found),
        "",
    ]
    lines += ["## Where the nano model learns Sokoban", "", *regimes(sweeps, results), ""]
    lines += ["## Warnings on these runs", "", warned(sweeps, results), "", _SYNTHETIC, ""]
    lines += ["## Pictures", ""]
    for sweep, one in there:
        lines += _picture(sweep, one, results[sweep.name], out)
    lines += ["## Not run", "", *_not_run(judged, results), "", "## Appendix: protocols", "", _RULES]
    for sweep, one in there:
        lines += _section(one, results[sweep.name])
    return "\n".join(lines).rstrip("\n") + "\n"


def _not_run(judged: Sequence[tuple[Sweep, Judgement]], results: Mapping[str, Any]) -> Iterator[str]:
    missing = [pair for pair in judged if pair[1].decision is Decision.NOT_RUN]
    yield from (f"<details><summary>{len(missing)} experiments and their cost</summary>", "")
    rows = [
        (one.name, _sentence(one.protocol.claim), one.protocol.source, cost(sweep, results[sweep.name]))
        for sweep, one in missing
    ]
    yield from (*table(("experiment", "claim", "source", "cost"), rows), "", "</details>")


def states(judged: Sequence[Judgement]) -> dict[str, str]:
    """Name -> decision of each experiment, with the decisions of those that follow it; undecided ones are left out."""
    found = {one.name: str(one.decision) for one in judged}
    for one in judged:
        if one.protocol.follows in found and one.decision in _ORDER[:2]:
            found[one.protocol.follows] += f"; {one.name}: {one.decision}"
    return found


def _picture(sweep: Sweep, found: Judgement, result: Mapping[str, Any], out: Path) -> Iterator[str]:
    yield from (f"### {found.name}", "", f"{found.protocol.question} **{str(found.decision).capitalize()}.**", "")
    if (out / f"{found.name}.png").exists():
        yield from (f"![{found.name}](../benchmarks/results/reproduction/{found.name}.png)", "")
    if rows := sensitivity(sweep, result):
        yield from ("By other definitions (p not corrected):", "")
        cells = [(one.comparison, one.definition, f"{one.value:+.3g}", _p_value(one.p_value)) for one in rows]
        yield from (*table(("direction", "definition", "difference", "p"), cells), "")


def _section(found: Judgement, result: Mapping[str, Any]) -> Iterator[str]:
    protocol = found.protocol
    yield from (f"### Protocol of {found.name}", "", f"{_sentence(protocol.claim)}. ({protocol.source})", "")
    yield from (f"**{found.sentence}**", "", f"Rule: {protocol.rule}", "")
    if protocol.follows:
        yield from (f"Follows {protocol.follows}: the question that it left open, on other seeds.", "")
    if protocol.changed:
        yield from ("Changed:", "", *(f"- {one}" for one in protocol.changed), "")
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
        _p_value(one.p_value),
        _p_value(one.exact_p),
        _interval(one.improvement),
        "-" if one.chance_left is None else f"{one.chance_left:.0%}",
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


def _p_value(value: float | None) -> str:
    return "-" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


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
