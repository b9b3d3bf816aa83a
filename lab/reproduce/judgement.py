"""The verdict on an experiment, from its protocol and its result alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from ragen_lab.reproduce.decisions import Band, Decision, best_of_flat, direction, level
from ragen_lab.reproduce.estimates import (
    Difference,
    Interval,
    difference,
    holm,
    paired_difference,
    probability_of_improvement,
    stratified_bootstrap,
)
from ragen_lab.reproduce.exact import chance_of_a_decision
from ragen_lab.reproduce.experiment_protocol import Comparison, ExperimentProtocol
from ragen_lab.reproduce.measure import label, unpacked
from ragen_lab.reproduce.survival import compare_survival, share_of_runs
from ragen_lab.reproduce.sweep import Sweep

__all__ = ["Judged", "Judgement", "LevelJudged", "Warnings", "judge_result", "mean_of"]

_Run = Mapping[str, Any]


@dataclass(frozen=True)
class Judged:
    """A comparison and what the runs say of it.

    Attributes:
        comparison: of the protocol.
        statistic: in words.
        decision: `CONFIRMED`, `CONTRADICTED`, `UNDECIDED` or `NOT_RUN`.
        effect: first less second, or less the number; None without two runs of each.
        p_value: of a comparison that decides corrected by Holm over all that do, run or not; of others as it is. None
            with too few seeds.
        exact_p: over all exchanges of runs, uncorrected, beside a t-test.
        chance_left: where seeds are left and nothing is decided, the chance that they will, under the trend so far.
        sides: interquartile mean over the runs of `first` and of `second` with its bootstrap interval.
        improvement: the chance that a run of `first` scores higher than one of `second`; None against a number.
        missing: variant -> seeds that it lacks.
    """

    comparison: Comparison
    statistic: str
    decision: Decision
    effect: Interval | None
    p_value: float | None
    exact_p: float | None
    chance_left: float | None
    sides: tuple[Interval | None, ...]
    improvement: Interval | None
    missing: Mapping[str, int]


@dataclass(frozen=True)
class LevelJudged:
    """A published number beside ours.

    Attributes:
        variant, panel: which.
        published: the paper's.
        is_best: both are the best evaluation of a run.
        decision: `PASS`, `FAIL`, `UNDECIDED` or `NOT_RUN`.
        ours: mean over runs with its 90 % interval; None without a run.
        band: what passes.
        bias: by how much the best of as many evaluations exceeds a flat rate of the published size; None where it is
            no best.
    """

    variant: str
    panel: str
    published: float
    is_best: bool
    decision: Decision
    ours: Interval | None = None
    band: Band | None = None
    bias: float | None = None


@dataclass(frozen=True)
class Warnings:
    """How the diagnostics did on these runs, whose collapses their thresholds had not seen.

    Attributes:
        runs: finished ones that count.
        collapsed: runs that collapsed, by `ragen-verl diagnose`.
        leads: steps from the first warning to the collapse, of those of them that were warned before it.
        false: runs with a warning and no collapse by their last step.
    """

    runs: int
    collapsed: int
    leads: tuple[int, ...]
    false: int

    @classmethod
    def of(cls, runs: Sequence[_Run]) -> Warnings:
        """From the runs of a result."""
        fallen = [run for run in runs if run["collapsed"] is not None]
        leads = sorted(run["collapsed"] - run["warned"] for run in fallen if run["warned"] < run["collapsed"])
        warned = sum(run["warned"] is not None and run["collapsed"] is None for run in runs)
        return cls(len(runs), len(fallen), tuple(leads), warned)

    @property
    def sentence(self) -> str:
        """In one sentence."""
        early = f" ({min(self.leads)} to {max(self.leads)} steps, median {median(self.leads):g})" if self.leads else ""
        return (
            f"The verdict of the diagnostics: {self.collapsed} of {self.runs} runs collapsed, {len(self.leads)} with a "
            f"warning before{early}; of the other {self.runs - self.collapsed} it warned in {self.false}."
        )


@dataclass(frozen=True)
class Judgement:
    """The verdict on an experiment.

    Attributes:
        name: of the sweep.
        protocol: its.
        decision: `CONFIRMED`, `CONTRADICTED`, `UNDECIDED`, `NOT_RUN` or `PILOT`.
        comparisons, levels: one for each of the protocol and of the published numbers.
        runs: variant -> finished runs that count.
        warnings: of the diagnostics.
        lacking: variant -> seeds that the look at all seeds lacks.
    """

    name: str
    protocol: ExperimentProtocol
    decision: Decision
    comparisons: tuple[Judged, ...]
    levels: tuple[LevelJudged, ...]
    runs: Mapping[str, int]
    warnings: Warnings
    lacking: Mapping[str, int]

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        deciding = [one for one in self.comparisons if one.comparison.decides]
        counts = {kind: sum(one.decision is kind for one in deciding) for kind in Decision}
        head = f"{self.name}: {str(self.decision).upper()}"
        if self.decision is Decision.PILOT:
            return f"{head}; it chose the setting of others and has no verdict."
        if self.decision is Decision.NOT_RUN:
            return f"{head}; no direction that decides has a run of each side."
        parts = [f"{counts[kind]} {kind}" for kind in (Decision.CONTRADICTED, Decision.CONFIRMED) if counts[kind]]
        parts += [f"{open_} undecided"] if (open_ := counts[Decision.UNDECIDED] + counts[Decision.NOT_RUN]) else []
        lacking = [f"{number} seeds of {variant}" for variant, number in self.lacking.items()]
        lack = f"; missing are {', '.join(lacking)}" if lacking and counts[Decision.UNDECIDED] else ""
        return f"{head}; of the directions that decide {', '.join(parts)}{lack}."


def judge_result(sweep: Sweep, result: Mapping[str, Any]) -> Judgement:
    """Decide.

    Args:
        sweep: with a protocol.
        result: what `collect` made of its runs.
    """
    looks = sweep.protocol.looks_at(len(sweep.seeds)).items()
    judged = [_look(sweep, result, seeds, level) for seeds, level in looks]
    decided = (one for one in judged if one.decision in (Decision.CONFIRMED, Decision.CONTRADICTED))
    whole = (one for one in reversed(judged) if not any(it.missing for it in one.comparisons if it.comparison.decides))
    return replace(next(decided, None) or next(whole, judged[-1]), lacking=judged[-1].lacking)


def _look(sweep: Sweep, result: Mapping[str, Any], seeds: int, level: float) -> Judgement:
    """The verdict on the first seeds."""
    protocol, taken = sweep.protocol, set(sweep.seeds[:seeds])
    by_variant: dict[str, dict[int, _Run]] = {variant: {} for variant in sweep.variants}
    for run in result["runs"]:
        if run["variant"] in by_variant and run["seed"] in taken:
            by_variant[run["variant"]][run["seed"]] = run
    drafts = [_Draft(one, protocol, by_variant, seeds) for one in protocol.comparisons]
    deciding = [one for one in drafts if one.comparison.decides]
    adjusted = dict(zip(map(id, deciding), holm([one.p_value for one in deciding]), strict=True))
    left = _LeftOver(len(sweep.seeds), list(protocol.looks_at(len(sweep.seeds)).values())[-1])
    judged = tuple(one.judged(adjusted.get(id(one), one.p_value), level, left) for one in drafts)
    decision = _decision([one for one in judged if one.comparison.decides])
    return Judgement(
        sweep.name,
        protocol,
        Decision.PILOT if protocol.pilot and result["runs"] else decision,
        judged,
        tuple(
            _level(sweep, variant, panel, value, list(by_variant[variant].values()))
            for variant, values in sweep.published.items()
            for panel, value in values.items()
        ),
        {variant: len(runs) for variant, runs in by_variant.items()},
        Warnings.of([run for runs in by_variant.values() for run in runs.values()]),
        {variant: number for one in deciding for variant, number in one.missing.items()},
    )


def _decision(deciding: Sequence[Judged]) -> Decision:
    found = [one.decision for one in deciding]
    if Decision.CONTRADICTED in found:
        return Decision.CONTRADICTED
    if all(one is Decision.CONFIRMED for one in found):
        return Decision.CONFIRMED
    return Decision.NOT_RUN if all(one is Decision.NOT_RUN for one in found) else Decision.UNDECIDED


@dataclass(frozen=True)
class _LeftOver:
    """The look at all seeds: their number and its level."""

    seeds: int
    level: float


class _Draft:
    """A comparison before the correction for the others."""

    def __init__(
        self,
        comparison: Comparison,
        protocol: ExperimentProtocol,
        runs: Mapping[str, Mapping[int, _Run]],
        least_seeds: int,
    ) -> None:
        self.comparison, self.protocol = comparison, protocol
        self.statistic = protocol.statistic_of(comparison)
        self.name = label(self.statistic)
        self.values = {
            variant: {seed: run["values"][self.name] for seed, run in runs[variant].items() if _has(run, self.name)}
            for variant in comparison.variants
        }
        common = set.intersection(*(set(found) for found in self.values.values()))
        self.paired = comparison.paired and self.statistic.kind != "collapse"
        self.seeds = sorted(common)
        counts = {v: len(common) if self.paired else len(found) for v, found in self.values.items()}
        self.missing = {v: least_seeds - n for v, n in counts.items() if n < least_seeds}
        self.least = min(counts.values())
        self.found = self._difference() if self.least > 1 else None

    @property
    def ready(self) -> bool:
        """Whether there are enough seeds."""
        return self.found is not None and not self.missing

    @property
    def p_value(self) -> float:
        """Uncorrected; 1 with too few seeds."""
        return self.found.p_value if self.found and self.ready else 1.0

    def judged(self, corrected: float, level: float, last: _LeftOver) -> Judged:
        """With the corrected p-value."""
        decision = Decision.NOT_RUN if not self.least else Decision.UNDECIDED
        if self.protocol.pilot and self.least:
            decision = Decision.PILOT
        elif self.ready and self.found:
            decision = direction(self.found.interval.value, corrected, self.comparison.expected, level)
        first, second = (self._scores(side) for side in (self.comparison.first, self.comparison.second))
        sides = tuple(stratified_bootstrap(one) if len(one) else None for one in (first, second))
        improvement = probability_of_improvement(first, second) if len(first) and len(second) else None
        effect, exact_p = (self.found.interval, self.found.exact_p) if self.found else (None, None)
        if self.share and effect:
            sides = (_shifted(effect, self.comparison.than), None)
        left = None
        if decision is Decision.UNDECIDED and self.found and self.protocol.least_seeds <= self.least < last.seeds:
            uncorrected = corrected if self.ready else self.found.p_value
            left = chance_of_a_decision(uncorrected, self.least, last.seeds, last.level)
        p_value = corrected if self.ready else None
        return Judged(
            self.comparison, self.name, decision, effect, p_value, exact_p, left, sides, improvement, self.missing
        )

    @property
    def share(self) -> bool:
        """Whether the share of runs that collapse is compared with a number."""
        return self.statistic.kind == "collapse" and self.comparison.than is not None

    def _difference(self) -> Difference:
        first, second, than = self.comparison.first, self.comparison.second, self.comparison.than
        if self.statistic.kind == "collapse":
            ours = [(one["step"], one["collapsed"]) for v in first for one in self.values[v].values()]
            if than is None:
                theirs = [(one["step"], one["collapsed"]) for v in second for one in self.values[v].values()]
                return compare_survival(ours, theirs)
            return share_of_runs(sum(collapsed for _, collapsed in ours), len(ours), than)
        if than is not None:
            means = np.mean([[mean_of(self.values[v][seed]) for v in first] for seed in self.seeds], axis=1)
            return paired_difference(means[:, None] - than)
        if not self.paired:
            return difference(*(np.ravel(self._scores(side)).tolist() for side in (first, second)))
        return paired_difference(np.hstack([self._by_state(a, b) for a, b in zip(first, second, strict=True)]))

    def _by_state(self, first: str, second: str) -> np.ndarray:
        """Differences of two variants, float64 of shape (seeds, states that all runs share), or (seeds, 1)."""
        sides = [[self.values[variant][seed] for seed in self.seeds] for variant in (first, second)]
        if not isinstance(sides[0][0], list):
            return np.subtract(*sides)[:, None].astype(float)
        states = [[_state_means(value) for value in side] for side in sides]
        shared = sorted(set.intersection(*(set(one) for side in states for one in side)))
        if not shared:
            return np.array([[mean_of(a) - mean_of(b)] for a, b in zip(*sides, strict=True)])
        tables = [[[one[state] for state in shared] for one in side] for side in states]
        return np.subtract(*tables)

    def _scores(self, variants: Sequence[str]) -> np.ndarray:
        """A number for each run, float64 of shape (runs, variants)."""
        if not variants:
            return np.empty((0, 0))
        columns = [[mean_of(one) for _, one in sorted(self.values[variant].items())] for variant in variants]
        least = min(map(len, columns))
        return np.array([column[:least] for column in columns]).T


def _shifted(one: Interval, by: float) -> Interval:
    return Interval(one.value + by, one.low + by, one.high + by, one.runs)


def _has(run: _Run, name: str) -> bool:
    return run["values"].get(name) is not None


def mean_of(value: Any) -> float:
    """A run's statistic as one number: the mean over its states, or the step of its collapse."""
    if isinstance(value, list):
        return round(float(np.mean(list(_state_means(value).values()))), 12)  # so that equal runs tie
    return float(value["step"] if isinstance(value, Mapping) else value)


def _state_means(evaluations: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    """State -> mean over the evaluations that have it."""
    found = [unpacked(one) for one in evaluations]
    shared = sorted(set.intersection(*(set(one) for one in found)))
    return {state: float(np.mean([one[state] for one in found])) for state in shared}


def _level(sweep: Sweep, variant: str, panel: str, published: float, runs: Sequence[_Run]) -> LevelJudged:
    protocol, is_best = sweep.protocol, sweep.protocol.published_is == "best"
    if is_best:
        values = [run["best"][panel] for run in runs if panel in run["best"]]
    else:
        last = protocol.statistic.last
        values = [float(np.mean([value for _, value in run["curves"][panel][-last:]])) for run in runs]
    if not values:
        return LevelJudged(variant, panel, published, is_best, Decision.NOT_RUN)
    decision, ours, band = level(values, published, protocol.noise[panel])
    bias = None
    if is_best and 0 <= published <= 1 and runs[0]["episodes"]:
        bias = best_of_flat(published, runs[0]["episodes"], runs[0]["evaluations"])
    if len(values) < protocol.least_seeds:
        decision = Decision.UNDECIDED
    return LevelJudged(variant, panel, published, is_best, decision, ours, band, bias)
