"""When runs collapse: those that did not by their last step are censored there, not left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ragen_lab.reproduce.estimates import Difference, Interval, difference
from scipy import stats

__all__ = ["Times", "compare_survival", "log_rank_scores", "restricted_mean", "share_of_runs", "survival_curve"]

Times = Sequence[tuple[int, bool]]
"""For each run the step of its collapse and True, or the last step without one and False."""


def survival_curve(times: Times) -> list[tuple[int, float]]:
    """Kaplan and Meier's (1958) estimate: (step, share of runs not collapsed after it), from step 0 on."""
    if not any(collapsed for _, collapsed in times):
        return [(0, 1.0)]
    found = stats.ecdf(_censored(times)).sf
    points = zip(found.quantiles, found.probabilities, strict=True)
    return [(0, 1.0), *((int(step), float(share)) for step, share in points)]


def restricted_mean(times: Times, horizon: int) -> float:
    """Mean steps without collapse up to the horizon: the area under the curve."""
    steps, shares = zip(*survival_curve(times), strict=True)
    inside = np.minimum([*steps, horizon], horizon)
    return float(np.sum(np.diff(inside) * np.asarray(shares)))


def log_rank_scores(times: Times) -> np.ndarray:
    """What each run adds to observed less expected collapses of its side, float64 of shape (runs,).

    1 for a collapse, less the pooled cumulative hazard (Nelson and Aalen) at the run's step. The sum over one side is
    the numerator of the log-rank test (Mantel 1966).
    """
    steps = np.array([step for step, _ in times])
    died = np.array([collapsed for _, collapsed in times])
    hazard = {at: died[steps == at].sum() / (steps >= at).sum() for at in np.unique(steps[died])}
    return died - np.array([sum(rate for at, rate in hazard.items() if at <= step) for step in steps])


def compare_survival(first: Times, second: Times, seed: int = 0) -> Difference:
    """Steps without collapse: the first side's less the second's, and the log-rank test.

    With a handful of runs the test's normal approximation is poor, so its numerator is compared with that of every
    exchange of runs between the sides, or of many drawn ones.

    Args:
        first, second: collapse steps of each side.
        seed: of what is drawn.

    Returns:
        The difference of the mean steps without collapse, up to the last step that is known of both sides, with
        Welch's interval over the runs' parts in it; the p-value is the log-rank test's.
    """
    horizon = _horizon(first, second)
    effect = difference(_pseudo_values(first, horizon), _pseudo_values(second, horizon))
    if effect.interval.runs < 2:
        return effect
    scores = log_rank_scores([*first, *second])
    p_value = 1.0
    if np.ptp(scores):
        sides = scores[: len(first)], scores[len(first) :]
        rng = np.random.default_rng(seed)
        test = stats.permutation_test(sides, _numerator, vectorized=True, n_resamples=19_999, rng=rng)
        p_value = float(test.pvalue)
    return Difference(effect.interval, p_value)


def share_of_runs(hits: int, runs: int, than: float) -> Difference:
    """The share of runs that collapse, less a number: exact binomial test, interval of Clopper and Pearson (1934).

    Args:
        hits: runs that collapsed.
        runs: all runs.
        than: the share that the claim is compared with, between 0 and 1.
    """
    test = stats.binomtest(hits, runs, than)
    ends = test.proportion_ci(0.95, "exact")
    return Difference(Interval(hits / runs - than, ends.low - than, ends.high - than, runs), float(test.pvalue))


def _numerator(first: np.ndarray, second: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.round(np.sum(first, axis=axis), 9)  # so that equal sums are equal in any order


def _horizon(*sides: Times) -> int:
    """The last step up to which every side's curve is known: infinity if its longest run has collapsed."""
    ends = [max(times, key=lambda one: (one[0], not one[1])) for times in sides]
    known = [step for step, collapsed in ends if not collapsed]
    return min(known) if known else max(step for step, _ in ends)


def _pseudo_values(times: Times, horizon: int) -> list[float]:
    """Each run's part in the restricted mean (Andersen, Hansen and Klein 2004): without censoring its own steps."""
    count, whole = len(times), restricted_mean(times, horizon)
    if count < 2:
        return [whole]
    others = [restricted_mean([*times[:one], *times[one + 1 :]], horizon) for one in range(count)]
    return [count * whole - (count - 1) * rest for rest in others]


def _censored(times: Times) -> stats.CensoredData:
    return stats.CensoredData.right_censored([step for step, _ in times], [not collapsed for _, collapsed in times])
