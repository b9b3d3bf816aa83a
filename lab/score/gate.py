"""`gate`: compare two sets of trajectories and decide whether anything has become worse, and where.

Each measure of each cohort is compared over initial states: paired where both sets have played the same states, else by
a two-sample comparison. All intervals hold jointly (Bonferroni), so that a gate with many measures does not fail by
chance more often than a gate with a single measure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from ragen_lab.evaluate.summary import interval
from ragen_lab.markdown import table as markdown_table
from ragen_lab.score.cohorts import Measure, State, cohorts_of, values_by_state
from ragen_lab.score.registry import LOWER
from ragen_lab.score.saved import Played
from ragen_lab.statistics import Estimate, difference, mean
from rich.table import Table

from ragen_verl.config.schema import Accepts, at_least
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.names import RETURN, SUCCESS

__all__ = ["DEGRADED", "FEW", "FINE", "IMPROVED", "Compared", "Thresholds", "gate", "markdown", "results", "table"]

DEGRADED, FEW, FINE, IMPROVED = "degraded", "too few states", "no worse", "better"
_LEVEL = {"accepts": Accepts(lambda value: 0.5 <= value < 1, "a number from 0.5 to less than 1")}

_NUMBERS = {
    "accepts": Accepts(
        lambda value: all(type(one) in (int, float) and 0 <= one < inf for one in value.values()),
        "measure: number, each 0 or more",
    )
}


@dataclass(frozen=True)
class Thresholds:
    """The limits of a gate; a YAML file holds these keys.

    Attributes:
        tolerance: measure -> the loss that still passes, in the measure's own unit; 0 for measures that are left out.
            A measure named here has to be compared: too few states for it are an error.
        measures: measures to compare, in addition to success and return; empty compares all for which `better` is set.
        min_states: the number of initial states that each side needs.
        confidence: the joint confidence of all intervals.
    """

    tolerance: dict[str, float] = field(default_factory=dict, metadata=_NUMBERS)
    measures: tuple[str, ...] = ()
    min_states: int = field(default=20, metadata=at_least(2))
    confidence: float = field(default=0.95, metadata=_LEVEL)


@dataclass(frozen=True)
class Compared:
    """The comparison of one measure in one cohort.

    Attributes:
        cohort, measure: their names.
        run, baseline: means over initial states; None where the measure applies to none.
        difference: run minus baseline, with its interval; None with too few states.
        paired: whether the two have played the same states.
        states: the number of compared states if paired, else the smaller number of the two sides.
        tolerance: the loss that still passes.
        outcome: `degraded`, `no worse`, `better` or `too few states`.
    """

    cohort: str
    measure: str
    run: float | None
    baseline: float | None
    difference: Estimate | None
    paired: bool
    states: int
    tolerance: float
    outcome: str

    def sentence(self) -> str:
        """The result as a sentence."""
        where = f"{self.measure} in {self.cohort}"
        if self.difference is None:
            return f"{where}: {self.outcome} ({self.states})."
        allowed = f", {self.tolerance:g} worse is allowed" if self.tolerance else ""
        how = "paired" if self.paired else "two samples"
        return (
            f"{where}: {self.baseline:.3f} -> {self.run:.3f}, {self.difference.value:+.3f} "
            f"({interval(self.difference)}), {how}, {self.states} states{allowed}."
        )


def gate(
    run: Sequence[Played],
    baseline: Sequence[Played],
    of: Sequence[Measure],
    key: Callable[[Played], str],
    thresholds: Thresholds | None = None,
) -> list[Compared]:
    """Compare a run with a baseline; both must have been scored before.

    Args:
        run, baseline: their trajectories.
        of: the measures, from `cohorts.measures`.
        key: trajectory -> cohort, from `cohorts.by`.
        thresholds: the limits of the gate.

    Returns:
        One comparison for each measure and cohort, in the order of both.

    Raises:
        RecipeError: the two have different environments or cohorts, the same seed has different initial states, a
            threshold names an unknown measure, or there are too few states for success, return or a wanted measure.
    """
    given = thresholds or Thresholds()
    judged = {one.name: one for one in of if one.better}
    for name in (*given.tolerance, *given.measures):
        if name not in judged:
            raise RecipeError(f"The thresholds name {name!r}, which is no measure here: {nearest(name, list(judged))}")
    needed = {SUCCESS, RETURN, *given.tolerance, *given.measures}
    chosen = [one for name, one in judged.items() if not given.measures or name in needed]
    _same_environments(run, baseline)
    ours, theirs = cohorts_of(run, key), cohorts_of(baseline, key)
    if missing := sorted({*ours} ^ {*theirs}):
        side = "the run" if missing[0] in theirs else "the baseline"
        raise RecipeError(f"{side.capitalize()} has no cohort {missing[0]!r}: compare by something that both have.")
    pairs = {
        (cohort, one.name): (values_by_state(ours[cohort], one), values_by_state(theirs[cohort], one))
        for cohort in ours
        for one in chosen
    }
    enough = sum(_states(*sides, given.min_states)[1] >= given.min_states for sides in pairs.values())
    level = 1 - (1 - given.confidence) / max(1, enough)
    found = [
        _compare(cohort, judged[name], *sides, given.tolerance.get(name, 0.0), given.min_states, level)
        for (cohort, name), sides in pairs.items()
    ]
    for one in found:
        if one.outcome == FEW and one.measure in needed:
            raise RecipeError(
                f"{one.measure} in {one.cohort} has {one.states} initial states on one side, too few to decide "
                f"anything: play {given.min_states} or more, or lower the least number (--min-states)."
            )
    return found


def _states(ours: Mapping[State, Any], theirs: Mapping[State, Any], least: int) -> tuple[bool, int]:
    """Whether the states are paired, and the number of states to compare."""
    common = len(set(ours) & set(theirs))
    return (True, common) if common >= least else (False, min(len(ours), len(theirs)))


def _compare(
    cohort: str,
    measure: Measure,
    ours: Mapping[State, list[float]],
    theirs: Mapping[State, list[float]],
    tolerance: float,
    least: int,
    level: float,
) -> Compared:
    is_paired, states = _states(ours, theirs, least)
    common = sorted(set(ours) & set(theirs)) if is_paired else []
    first, second = ([float(np.mean(side[state])) for state in (common or side)] for side in (ours, theirs))
    here, there = (float(np.mean(side)) if side else None for side in (first, second))
    between = None
    outcome = FEW
    if states >= least:
        between = mean(np.subtract(first, second), level) if is_paired else difference(first, second, level)
        low, high = between.low, between.high
        gain, loss = (-high, -low) if measure.better == LOWER else (low, high)
        outcome = DEGRADED if loss < -tolerance else IMPROVED if gain > 0 else FINE
    return Compared(cohort, measure.name, here, there, between, is_paired, states, tolerance, outcome)


def _same_environments(run: Sequence[Played], baseline: Sequence[Played]) -> None:
    ours, theirs = ({(one.split, one.env): one for one in side} for side in (run, baseline))
    if set(ours) != set(theirs):
        here, there = (", ".join(sorted("/".join(one) for one in side)) for side in (ours, theirs))
        raise RecipeError(f"The run played {here} and the baseline {there}: a gate compares the same environments.")
    for place, one in ours.items():
        other = theirs[place]
        if None not in (one.kwargs, other.kwargs) and one.kwargs != other.kwargs:
            raise RecipeError(
                f"{place[1]} has the arguments {dict(one.kwargs)} in the run and {dict(other.kwargs)} in the baseline: "
                "a gate compares the same environments."
            )
    starts = {(one.split, one.env, one.seed): one.turns[0]["state"] for one in baseline if one.turns}
    for one in run:
        if one.turns and one.turns[0]["state"] != starts.get((one.split, one.env, one.seed), one.turns[0]["state"]):
            raise RecipeError(
                f"{one.env} shows another initial state for the seed {one.seed} in the run than in the baseline: its "
                "arguments or its version differ, and a gate compares the same environments."
            )


def _verdict(found: Sequence[Compared]) -> str:
    """`degraded` if any comparison is, else `no worse`."""
    return DEGRADED if any(one.outcome == DEGRADED for one in found) else FINE


def results(found: Sequence[Compared], confidence: float) -> dict[str, Any]:
    """Data for JSON: `verdict`, `confidence`, `compared` (every comparison)."""
    rows = [{**vars(one), "difference": one.difference and vars(one.difference)} for one in found]
    return {"verdict": _verdict(found), "confidence": confidence, "compared": rows}


def _cells(one: Compared) -> list[str]:
    values = ["-" if value is None else f"{value:.3f}" for value in (one.baseline, one.run)]
    change = "-" if one.difference is None else f"{one.difference.value:+.3f}"
    within = "-" if one.difference is None else interval(one.difference)
    how = "paired" if one.paired else "two samples"
    return [one.cohort, one.measure, *values, change, within, str(one.states), how, one.outcome]


_COLUMNS = ("cohort", "measure", "baseline", "run", "change", "interval", "states", "how", "outcome")
_STYLES = {DEGRADED: "bold red", IMPROVED: "green", FEW: "dim"}


def table(found: Sequence[Compared], title: str) -> Table:
    """A table for the terminal."""
    out = Table(title=title, box=None, header_style="bold", title_justify="left")
    for column in _COLUMNS:
        out.add_column(column, justify="right" if column in _COLUMNS[2:7] else "left", no_wrap=True)
    for one in found:
        out.add_row(*_cells(one), style=_STYLES.get(one.outcome))
    return out


def markdown(found: Sequence[Compared], title: str) -> str:
    """A Markdown page: the degraded measures, and every comparison."""
    lines = [f"# {title}", "", f"**{_verdict(found)}**", ""]
    lines += [f"- {one.sentence()}" for one in found if one.outcome == DEGRADED]
    return "\n".join([*lines, "", *markdown_table(_COLUMNS, map(_cells, found))]) + "\n"
