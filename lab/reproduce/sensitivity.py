"""What the runs of a decided experiment say by other definitions: a finding that depends on one is weak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ragen_lab.reproduce.estimates import Difference, difference, paired_difference
from ragen_lab.reproduce.exact import sign_flips
from ragen_lab.reproduce.experiment_protocol import Comparison, Event, Statistic
from ragen_lab.reproduce.measure import from_curve, label
from ragen_lab.reproduce.regime import updates_a_step
from ragen_lab.reproduce.settings import unpacked
from ragen_lab.reproduce.survival import compare_survival, share_of_runs
from ragen_lab.reproduce.sweep import Sweep

__all__ = ["Otherwise", "sensitivity"]

_CLOCK = "data.train_batch_size"
"""A key that settings have if they were kept."""

_LINES, _HOLDS = (0.05, 0.15), (5, 20)
"""Other lines and numbers of steps below them than 0.1 and 10."""

_Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Otherwise:
    """A comparison by another definition.

    Attributes:
        comparison: its name.
        definition: in words.
        value: the difference.
        p_value: two-sided, not corrected.
    """

    comparison: str
    definition: str
    value: float
    p_value: float


def sensitivity(sweep: Sweep, result: Mapping[str, Any]) -> list[Otherwise]:
    """Each comparison that decides, by every other definition that the kept data allow.

    Collapse: updates as the clock, other lines and lengths where curves are whole, the verdict of the diagnostics,
    and runs that were stopped before their last step counted as collapsed. Others: without pairing, over all
    exchanges of runs, and without the seed whose absence raises p most.
    """
    found: list[Otherwise] = []
    for comparison in sweep.protocol.comparisons:
        statistic = sweep.protocol.statistic_of(comparison)
        sides = [[_of(result, variant) for variant in side] for side in (comparison.first, comparison.second)]
        if not comparison.decides or any(len(runs) < 2 for side in sides for runs in side):
            continue
        others = (
            _collapses(sweep, result, comparison, statistic, sides)
            if statistic.kind == "collapse"
            else _means(comparison, statistic, sides)
        )
        found += [Otherwise(comparison.name, words, one.interval.value, one.p_value) for words, one in others]
    return found


def _of(result: Mapping[str, Any], variant: str) -> list[Mapping[str, Any]]:
    return sorted((run for run in result["runs"] if run["variant"] == variant), key=lambda run: run["seed"])


def _collapses(
    sweep: Sweep,
    result: Mapping[str, Any],
    comparison: Comparison,
    statistic: Statistic,
    sides: Sequence[Sequence[_Runs]],
) -> Iterator[tuple[str, Difference]]:
    first, second = ([run for runs in side for run in runs] for side in sides)
    last = max(run["steps"] for run in (*first, *second))
    ends = {run["variant"]: max(one["steps"] for one in (*first, *second) if one["variant"] == run["variant"])
            for run in (*first, *second)}  # fmt: skip

    def as_declared(run: Mapping[str, Any]) -> tuple[int, bool]:
        value = run["values"][label(statistic)]
        return value["step"], value["collapsed"]

    def stopped_too(run: Mapping[str, Any]) -> tuple[int, bool]:
        step, collapsed = as_declared(run)
        return step, collapsed or run["steps"] < ends[run["variant"]]

    def by_verdict(run: Mapping[str, Any]) -> tuple[int, bool]:
        return run["steps"] if run["collapsed"] is None else run["collapsed"], run["collapsed"] is not None

    settings = unpacked(result["settings"])
    clock = {variant: updates_a_step(own) for variant, own in settings.items() if _CLOCK in own}

    def by_updates(run: Mapping[str, Any]) -> tuple[int, bool]:
        step, collapsed = as_declared(run)
        return step * clock[run["variant"]], collapsed

    ways: list[tuple[str, Any]] = [("the verdict of the diagnostics", by_verdict)]
    if len({clock.get(run["variant"]) for run in (*first, *second)}) > 1:
        ways.insert(0, ("with updates as the clock, not steps", by_updates))
    if any(run["steps"] < last and not as_declared(run)[1] for run in (*first, *second)):
        ways.insert(0, ("runs that were stopped early count as collapsed", stopped_too))
    if statistic.event:
        for event in _events(statistic.event):
            ways.append((f"below {event.below:g} for {event.hold} steps", _by_curve(sweep, statistic, event)))
    for words, way in ways:
        times = [[way(run) for run in side] for side in (first, second)]
        if any(one is None for side in times for one in side):
            continue
        if comparison.than is None:
            yield words, compare_survival(times[0], times[1])
        else:
            yield words, share_of_runs(sum(hit for _, hit in times[0]), len(times[0]), comparison.than)


def _events(event: Event) -> Iterator[Event]:
    for below in _LINES:
        yield replace(event, below=below)
    for hold in _HOLDS:
        yield replace(event, hold=hold)


def _by_curve(sweep: Sweep, statistic: Statistic, event: Event) -> Any:
    def times(run: Mapping[str, Any]) -> tuple[int, bool] | None:
        found = from_curve(run, replace(statistic, event=event), sweep.panels)
        return found and (found["step"], found["collapsed"])

    return times


def _means(
    comparison: Comparison, statistic: Statistic, sides: Sequence[Sequence[_Runs]]
) -> Iterator[tuple[str, Difference]]:
    from ragen_lab.reproduce.judgement import mean_of

    name = label(statistic)
    first, second = ([[mean_of(run["values"][name]) for run in runs] for runs in side] for side in sides)
    least = min(map(len, (*first, *second)))
    ours = np.mean([one[:least] for one in first], axis=0)
    theirs = np.mean([one[:least] for one in second], axis=0) if second else np.full(least, comparison.than)
    against = ours - theirs
    if second:
        apart = difference(ours.tolist(), theirs.tolist())
        yield "unpaired, Welch's test", apart
        if apart.exact_p is not None:
            yield "unpaired, all splits of the runs", replace(apart, p_value=apart.exact_p)
    yield (
        "a number for each run, paired t-test" if second else "a number for each run, t-test",
        paired_difference(against[:, None]),
    )
    flips = sign_flips(against)
    if flips is not None:
        yield f"paired, all {2**least} flips of signs", replace(paired_difference(against[:, None]), p_value=flips)
    if least > 2:
        without = [_left_out(ours, theirs, one, bool(second) and not comparison.paired) for one in range(least)]
        yield "without the seed that matters most", max(without, key=lambda one: one.p_value)


def _left_out(first: np.ndarray, second: np.ndarray, place: int, unpaired: bool) -> Difference:
    ours, theirs = np.delete(first, place), np.delete(second, place)
    return difference(ours.tolist(), theirs.tolist()) if unpaired else paired_difference((ours - theirs)[:, None])
