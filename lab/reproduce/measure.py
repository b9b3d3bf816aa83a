"""One run's numbers: the statistics of a protocol, from metrics.jsonl and the trajectories of its evaluations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ragen_lab.reproduce.experiment_protocol import Event, ExperimentProtocol, Statistic
from ragen_lab.reproduce.outcomes import Outcomes, evaluation, held_out
from scipy import stats

from ragen_verl.diagnostics.monitor import MonitorConfig, judge
from ragen_verl.names import EPISODES, HELD_OUT
from ragen_verl.runs.folder import RunFolder

__all__ = ["NotMeasured", "event_step", "from_curve", "label", "measured", "statistics_of", "unpacked"]


_SURELY_WHOLE = 20
"""Curves of this many points were never thinned: those of more than 40 had at least 21 left."""


class NotMeasured(Exception):
    """A finished run has no value of a statistic, and would have none if it were repeated."""


_Rows = Sequence[Mapping[str, Any]]


def statistics_of(protocol: ExperimentProtocol) -> dict[str, Statistic]:
    """Label -> every statistic that the protocol's comparisons need."""
    found = [protocol.statistic, *(protocol.statistic_of(one) for one in protocol.comparisons)]
    return {label(one): one for one in found}


def label(statistic: Statistic) -> str:
    """A statistic in words, which is also its name in a result."""
    if statistic.kind == "final":
        return f"mean of the last {statistic.last} values of {statistic.metric}"
    if statistic.kind in ("best", "first"):
        return f"{statistic.kind} value of {statistic.metric}"
    if statistic.kind == "correlation":
        return f"rank correlation of {statistic.metric} with {statistic.against}"
    collapse = _event_label(statistic.event) if statistic.event else "collapse"
    if statistic.kind == "lead":
        return f"steps from {_event_label(statistic.indicator)} to {collapse}"
    return f"steps without {collapse}"


def _event_label(event: Event) -> str:
    side, line = ("below", event.below) if event.above is None else ("above", event.above)
    share = {"value": f"{line}", "first": f"{line} of its first value", "best": f"{line} of its best"}[event.of]
    return f"{event.metric} {side} {share}"


def event_step(rows: _Rows, event: Event) -> int | None:
    """The first of `event.hold` logged values in a row beyond the line; None if that never happens."""
    first, best, since, count = None, None, None, 0
    for row in rows:
        if event.metric not in row:
            continue
        value = row[event.metric]
        first = value if first is None else first
        best = value if best is None else max(best, value)
        scale = {"value": 1.0, "first": first, "best": best}[event.of]
        beyond = value < event.below * scale if event.below is not None else value > event.above * scale
        count = count + 1 if beyond else 0
        since = row["step"] if count == 1 else since
        if count >= event.hold:
            return since
    return None


def measured(folder: RunFolder, protocol: ExperimentProtocol, panels: Mapping[str, str]) -> dict[str, Any]:
    """What a result holds of one finished run, as JSON-able data.

    Args:
        folder: the run's.
        protocol: whose statistics are taken.
        panels: title -> metric of the curves.

    Raises:
        DamagedRun: an evaluation's trajectories are cut short or missing.
        NotMeasured: the run did not log what a statistic is made of, or not often enough.
    """
    rows = folder.rows()
    steps = max((row["step"] for row in rows), default=0)
    verdict = judge((row for row in rows if row["step"] > 0), MonitorConfig.from_recipe(folder.ragen_block()))
    collapsed = verdict.collapsed[0] if verdict.collapsed else None
    values = {name: _value(folder, rows, one, collapsed, steps) for name, one in statistics_of(protocol).items()}
    evaluations = [row for row in rows if any(held_out(name) for name in row)]
    return {
        "steps": steps,
        "seconds": json.loads(folder.summary.read_text())["seconds"],
        "evaluations": len(evaluations),
        "episodes": max((int(row.get(f"{HELD_OUT}/{EPISODES}", 0)) for row in evaluations), default=0),
        "collapsed": collapsed,
        "warned": verdict.warned,
        "values": values,
        "curves": {title: _curve(rows, metric) for title, metric in panels.items()},
        "best": {title: max(found) for title, metric in panels.items() if (found := _series(rows, metric)[1])},
    }


def _value(folder: RunFolder, rows: _Rows, one: Statistic, collapsed: int | None, steps: int) -> Any:
    if one.kind in ("collapse", "lead"):
        at = event_step(rows, one.event) if one.event else collapsed
        if one.kind == "collapse":
            return {"step": steps if at is None else at, "collapsed": at is not None}
        begins = event_step(rows, one.indicator)
        return None if at is None or begins is None else at - begins
    logged, values = _series(rows, one.metric)
    if one.kind == "correlation":
        return _correlation(rows, one.metric, one.against)
    if one.kind == "final":
        logged, values = logged[-one.last :], values[-one.last :]
        if len(values) < one.last:
            raise NotMeasured(f"{len(values)} of {one.last} values of {one.metric}")
    elif one.kind == "first":
        logged, values = logged[:1], values[:1]
    if not values:
        raise NotMeasured(f"no value of {one.metric}")
    if one.kind == "best" or not held_out(one.metric):
        return round(float(max(values) if one.kind == "best" else np.mean(values)), 6)
    try:
        return [_packed(evaluation(folder, step, one.metric)) for step in logged]
    except KeyError as error:
        raise NotMeasured(f"no trajectory with {one.metric}") from error


def _series(rows: _Rows, metric: str) -> tuple[list[int], list[float]]:
    if metric == "step":
        return [row["step"] for row in rows], [float(row["step"]) for row in rows]
    found = [(row["step"], row[metric]) for row in rows if metric in row]
    return [step for step, _ in found], [value for _, value in found]


def _correlation(rows: _Rows, metric: str, against: str) -> float | None:
    """Spearman's; None for fewer than three steps with both, or where one of them never changes."""
    pairs = [(row[metric], row[against]) for row in rows if metric in row and against in row]
    if len(pairs) < 3 or any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        return None
    return round(float(stats.spearmanr(*zip(*pairs, strict=True)).statistic), 6)


def _packed(outcomes: Outcomes) -> dict[str, Any]:
    """An evaluation in few characters: seeds by environment, and where outcomes are counts their digits."""
    envs: dict[str, list[int]] = {}
    for env, seed in outcomes.states:
        envs.setdefault(env, []).append(seed)
    spans = {env: [seeds[0], len(seeds)] if seeds == list(range(seeds[0], seeds[0] + len(seeds))) else [seeds]
             for env, seeds in envs.items()}  # fmt: skip
    found: dict[str, Any] = {"step": outcomes.step, "states": spans}
    samples = set(outcomes.samples)
    sums = outcomes.means * outcomes.samples[0]
    if (
        len(samples) == 1
        and max(samples) < 10
        and np.allclose(sums, sums.round())
        and sums.min() >= 0
        and sums.max() < 10
    ):
        return found | {"samples": samples.pop(), "sums": "".join(str(int(one)) for one in sums.round())}
    return found | {"means": [round(float(one), 5) for one in outcomes.means]}


def unpacked(packed: Mapping[str, Any]) -> dict[tuple[str, int], float]:
    """State -> mean over its trajectories, of an evaluation in a result."""
    states = [
        (env, seed)
        for env, span in packed["states"].items()
        for seed in (span[0] if isinstance(span[0], list) else range(span[0], span[0] + span[1]))
    ]
    means = [int(one) / packed["samples"] for one in packed["sums"]] if "sums" in packed else packed["means"]
    return dict(zip(states, means, strict=True))


def _curve(rows: _Rows, metric: str) -> list[list[float]]:
    return [[step, float(f"{value:.4g}")] for step, value in zip(*_series(rows, metric), strict=True)]


def from_curve(run: Mapping[str, Any], one: Statistic, panels: Mapping[str, str]) -> Any:
    """A statistic of a run in a result that lacks it, from a curve that it has; None if none of them says it.

    Curves have four digits, and of each step one number and not one for each state. Results of before all points
    were kept have at most 40 of a curve, so that a longer one counts only if it has every step.
    """
    event = one.event if one.kind == "collapse" else None
    metric = event.metric if event else one.metric if one.kind in ("first", "final", "best") else None
    title = next((title for title, name in panels.items() if name == metric and run["curves"].get(title)), None)
    if title is None:
        return None
    curve = run["curves"][title]
    if len(curve) > _SURELY_WHOLE and curve[-1][0] - curve[0][0] >= len(curve):
        return None
    if event:
        at = event_step([{"step": step, metric: value} for step, value in curve], event)
        return {"step": run["steps"] if at is None else at, "collapsed": at is not None}
    values = [value for _, value in curve]
    if one.kind == "final":
        return round(float(np.mean(values[-one.last :])), 6) if len(values) >= one.last else None
    return run["best"][title] if one.kind == "best" else values[0]
