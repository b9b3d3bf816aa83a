"""Estimates and intervals from few runs. Runs (seeds) are independent of each other, and they share their states.

Interquartile mean, stratified bootstrap and probability of improvement are those of Agarwal et al. (2021, "Deep
Reinforcement Learning at the Edge of the Statistical Precipice"). Their library `rliable` is not used: it would install
another version of pandas, and only three formulas are needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from ragen_lab.reproduce.exact import sign_flips, splits
from scipy import stats

__all__ = [
    "Difference",
    "Interval",
    "difference",
    "holm",
    "interquartile_mean",
    "mean_of_runs",
    "paired_difference",
    "probability_of_improvement",
    "stratified_bootstrap",
]

_CONFIDENCE = 0.95
_RESAMPLES = 2_000


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval.

    Attributes:
        value: the estimate.
        low, high: the ends of the interval; None for fewer than two runs.
        runs: the number of runs.
    """

    value: float
    low: float | None
    high: float | None
    runs: int


@dataclass(frozen=True)
class Difference:
    """The first side of a comparison minus the second.

    Attributes:
        interval: the mean difference with its 95 % interval.
        p_value: the two-sided p-value of no difference; 1.0 for fewer than two runs.
        exact_p: beside a t-test, the p-value over all exchanges of runs; None without a t-test.
    """

    interval: Interval
    p_value: float
    exact_p: float | None = None


def mean_of_runs(values: Sequence[float], confidence: float = _CONFIDENCE) -> Interval:
    """The mean of one number for each run, with its t-interval."""
    return _t_interval(float(np.mean(values)), _variance_of_mean(np.asarray(values)), len(values), confidence)[0]


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of all scores (Agarwal et al., section 4.3).

    Args:
        scores: float64 of shape (..., runs, tasks).

    Returns:
        float64 of shape (...).
    """
    values = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = values.shape[-1] // 4
    return values[..., cut : values.shape[-1] - cut].mean(axis=-1)


def stratified_bootstrap(
    scores: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray] = interquartile_mean,
    confidence: float = _CONFIDENCE,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Interval:
    """A statistic with its percentile interval; in every task the runs are drawn again, with replacement.

    Args:
        scores: float64 of shape (runs, tasks); a task is an environment on which every run is evaluated.
        statistic: a function of arrays of shape (..., runs, tasks).
        confidence: the confidence of the interval.
        resamples: the number of draws.
        seed: the seed of the draws.
    """
    value, runs = float(statistic(scores)), len(scores)
    if runs < 2:
        return Interval(value, None, None, runs)
    drawn = statistic(_resampled(scores, resamples, np.random.default_rng(seed)))
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(value, float(low), float(high), runs)


def probability_of_improvement(
    first: np.ndarray, second: np.ndarray, confidence: float = _CONFIDENCE, resamples: int = _RESAMPLES, seed: int = 0
) -> Interval:
    """The chance that a run of the first side scores higher than one of the second, ties counting half.

    It is averaged over the tasks (Agarwal et al., section 4.3). Its interval is that of `stratified_bootstrap`.

    Args:
        first, second: float64 of shapes (runs, tasks); the numbers of runs may differ.
        confidence: the confidence of the interval.
        resamples: the number of draws.
        seed: the seed of the draws.
    """
    value, runs = float(_superiority(first, second)), min(len(first), len(second))
    if runs < 2:
        return Interval(value, None, None, runs)
    rng = np.random.default_rng(seed)
    drawn = _superiority(_resampled(first, resamples, rng), _resampled(second, resamples, rng))
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(value, float(low), float(high), runs)


def paired_difference(differences: np.ndarray) -> Difference:
    """The mean of the differences between runs with the same seed on the same states.

    Runs differ in their training and states in their difficulty, so the variance of the mean is clustered by both
    (Cameron, Gelbach and Miller 2011). It is the variance of the seeds' means, plus that of the states' means, minus
    that of single differences, which both contain; and it is at least the variance of the seeds' means. Student's t has
    one degree of freedom less than there are seeds.

    Args:
        differences: float64 of shape (seeds, states). With one state, for a metric without states, this is the paired
            t-test over seeds.
    """
    seeds, states = differences.shape
    variance = _variance_of_mean(differences.mean(axis=1))
    if states > 1 and seeds > 1:
        by_state = _variance_of_mean(differences.mean(axis=0))
        variance = max(variance, variance + by_state - _variance_of_mean(differences.ravel()))
    found = _t_interval(float(differences.mean()), variance, seeds, _CONFIDENCE)
    return Difference(*found, sign_flips(differences.mean(axis=1)))


def difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """The difference between the means of independent runs, by Welch's t-test; one number for each run."""
    value = float(np.mean(first) - np.mean(second))
    runs = min(len(first), len(second))
    if runs < 2:
        return Difference(Interval(value, None, None, runs), 1.0)
    parts = _variance_of_mean(np.asarray(first)), _variance_of_mean(np.asarray(second))
    if not sum(parts):
        return Difference(Interval(value, value, value, runs), 0.0 if value else 1.0, splits(first, second))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)  # equal runs on one side have no variance
        test = stats.ttest_ind(first, second, equal_var=False)
    interval = test.confidence_interval(_CONFIDENCE)
    ends = float(interval.low), float(interval.high)
    return Difference(Interval(value, *ends, runs), float(test.pvalue), splits(first, second))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values, which keep the chance of any false finding in the table below the level.

    The i-th smallest of n values is multiplied by n - i + 1, and no result is smaller than the one before it.
    """
    count, adjusted, largest = len(p_values), [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(count), key=lambda one: p_values[one])):
        largest = max(largest, min(1.0, (count - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _t_interval(value: float, variance: float, runs: int, confidence: float) -> tuple[Interval, float]:
    if runs < 2:
        return Interval(value, None, None, runs), 1.0
    if not variance:
        return Interval(value, value, value, runs), 0.0 if value else 1.0
    half = variance**0.5 * float(stats.t.ppf((1 + confidence) / 2, runs - 1))
    p_value = 2 * float(stats.t.sf(abs(value) / variance**0.5, runs - 1))
    return Interval(value, value - half, value + half, runs), p_value


def _variance_of_mean(values: np.ndarray) -> float:
    return float(np.var(values, ddof=1) / len(values)) if len(values) > 1 else 0.0


def _resampled(scores: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Runs drawn with replacement in every task, of shape (resamples, runs, tasks)."""
    chosen = rng.integers(len(scores), size=(resamples, *scores.shape))
    return np.take_along_axis(scores[None], chosen, axis=1)


def _superiority(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The probability of improvement, of shape (...) for arguments of shapes (..., runs, tasks)."""
    signs = np.sign(first[..., :, None, :] - second[..., None, :, :])
    return (signs + 1).mean(axis=(-3, -2, -1)) / 2
