"""A metric over a run: its early baseline, its noise, its present value and its best value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from ragen_verl.names import (
    EPISODES,
    GENERALISATION,
    HELD_OUT,
    HELD_OUT_SUCCESS,
    MISMATCH,
    MUTUAL_INFORMATION,
    REWARD_MEAN,
    REWARD_STD,
    TRAIN_SUCCESS,
)

__all__ = [
    "ACCURACY",
    "BASELINE",
    "CHANCE",
    "CONDITIONAL_ENTROPY",
    "COUNTS",
    "NOISE",
    "PERFORMANCE",
    "SKILL",
    "WINDOW",
    "Series",
    "Trace",
    "number",
]

BASELINE = 10  # steps: the length of RAGEN-2's baseline
WINDOW = 5  # steps: a median of five moves only when three of them do
NOISE = 4.0  # a metric has to differ from its baseline by this many standard errors: a run is tested a thousand times
# the same for metrics that are not measured at every step, in values instead of steps
_SPARSE_BASELINE, _SPARSE_WINDOW = 3, 3
_SPARSE = (f"{MUTUAL_INFORMATION}/", f"{MISMATCH}/", f"{HELD_OUT}/", f"{GENERALISATION}/")
_KEPT_APART = (f"{MISMATCH}/", f"{HELD_OUT}/", f"{GENERALISATION}/")  # do not depend on the training environments

# Measurements differ in the number of prompts, so accuracy is compared with its own chance: 0 is guessing.
ACCURACY, CHANCE, SKILL = (f"{MUTUAL_INFORMATION}/retrieval_{name}" for name in ("accuracy", "chance", "skill"))
CONDITIONAL_ENTROPY = f"{MUTUAL_INFORMATION}/conditional_entropy"

COUNTS = {HELD_OUT_SUCCESS: f"{HELD_OUT}/{EPISODES}", ACCURACY: f"{MUTUAL_INFORMATION}/responses"}
"""Rate -> the metric with its number of episodes or samples, from which its binomial error follows."""

PERFORMANCE = (TRAIN_SUCCESS, REWARD_MEAN)
# These use means over twice the window: they have no large outliers, and where success is rare they are 0 for many
# steps, so that a median would be 0 too.
_MEANS = (*PERFORMANCE, REWARD_STD)

# For independent normal values: the mean and the median distance between successive values, in standard deviations; the
# variance of the mean and of the median of n values times n, in variances
_DISTANCE = {fmean: 1.128, median: 0.954}
_VARIANCE = {fmean: 1.0, median: math.pi / 2}
_RECENT = 50  # noise is estimated from this many values or windows
_LEAST_CENTERS = 12
_BEND = 0.6745 * math.sqrt(1.5)  # median of |b - (a + c) / 2| for independent values of standard deviation 1


class Series:
    """One metric over a run.

    Args:
        baseline: how many first values give the baseline.
        window: how many last values give the present value.
        center: the median or the mean, used for both.

    Attributes:
        values: all values, in order.
        errors: their standard errors where sample counts give them; None where they are unknown.
        recent: centre of the last `window` values; None while there are fewer.
        best: highest `recent` so far.
        baseline: centre of the first values; None until there is a whole window after them.
        std: standard deviation of the noise in the first values, from the distances between successive ones; 0 until
            there is a baseline. Deviations from the centre would include a trend, which is common at a run's start, and
            would hide later changes.
    """

    def __init__(
        self, baseline: int = BASELINE, window: int = WINDOW, center: Callable[[Sequence[float]], float] = median
    ) -> None:
        self._first, self._window, self._center = baseline, window, center
        self.values: list[float] = []
        self.errors: list[float | None] = []
        self.recent: float | None = None
        self.best: float | None = None
        self.baseline: float | None = None
        self.std = 0.0
        self._best_variance: float | None = None
        self._centers: list[float] = []  # of successive windows that do not overlap
        self._slow = (0, 0.0)  # number of centres at the last computation of `slow_noise`, and its result

    def add(self, value: float, error: float | None = None) -> None:
        """Append a finite value, with its standard error where a sample count gives it."""
        self.values.append(value)
        self.errors.append(error)
        if len(self.values) >= self._window:
            self.recent = self._center(self.values[-self._window :])
            if len(self.values) % self._window == 0:
                self._centers.append(self.recent)
            if self.best is None or self.recent > self.best:
                self.best, self._best_variance = self.recent, self._variance(slice(-self._window, None))
        if len(self.values) == self._first + self._window:
            self.baseline = self._center(self.values[: self._first])
            self.std = self._scatter(self.values[: self._first])

    @property
    def noise(self) -> float:
        """Like `std`, but of the last values: a rate varies more around a half than near 0, where many runs start."""
        return self._scatter(self.values[-_RECENT:])

    @property
    def slow_noise(self) -> float:
        """Standard deviation of a window's centre around its neighbours'; 0 while there are too few windows.

        It includes noise that lasts longer than one step, which the distances of successive values do not show. A
        steady trend cancels, since each centre is compared with the mean of its two neighbours.
        """
        if len(self._centers) < _LEAST_CENTERS:
            return 0.0
        if self._slow[0] != len(self._centers):
            recent = self._centers[-_RECENT:]
            bends = [abs(b - (a + c) / 2) for a, b, c in zip(recent, recent[1:], recent[2:], strict=False)]
            self._slow = (len(self._centers), median(bends) / _BEND)
        return self._slow[1]

    def _scatter(self, values: Sequence[float]) -> float:
        distances = [abs(b - a) for a, b in pairwise(values)]
        return self._center(distances) / _DISTANCE[self._center] if len(distances) > 1 else 0.0

    @property
    def error(self) -> float:
        """Standard error of `recent - baseline`: from sample counts, else from the noise of the run's first values."""
        parts = self._variance(slice(0, self._first)), self._variance(slice(-self._window, None))
        if None not in parts:
            return math.sqrt(sum(parts))
        # the baseline alone has too few distances for an estimate of the noise
        before = self.values[: max(0, min(3 * self._first, len(self.values) - 2 * self._window))]
        noise = max(self.std, self._scatter(before))
        return noise * math.sqrt(_VARIANCE[self._center] * (1 / self._first + 1 / self._window))

    @property
    def fall_error(self) -> float | None:
        """Standard error of `best - recent` from sample counts; None where a count is unknown."""
        parts = self._best_variance, self._variance(slice(-self._window, None))
        return None if None in parts else math.sqrt(sum(parts))

    def _variance(self, part: slice) -> float | None:
        """Variance of the centre of some values, from their own errors; None where an error is unknown."""
        errors = self.errors[part]
        if None in errors or not errors:
            return None
        return _VARIANCE[self._center] * fmean([one**2 for one in errors]) / len(errors)

    def below(self, factor: float) -> bool:
        """Whether the metric is below `factor` times its baseline, and by more than noise."""
        base, now = self.baseline, self.recent
        return base is not None and now < factor * base and now < base - NOISE * self.error

    def above(self, factor: float) -> bool:
        """Whether the metric is above `factor` times its baseline, and by more than noise."""
        base, now = self.baseline, self.recent
        return base is not None and now > factor * base and now > base + NOISE * self.error

    @property
    def lately(self) -> float | None:
        """The higher of `recent` and the centre of the window before it, so that one low window does not count."""
        if len(self.values) < 2 * self._window:
            return self.recent
        return max(self.recent, self._center(self.values[-2 * self._window : -self._window]))

    def last(self, count: int) -> list[float]:
        """The last `count` values; empty while there are fewer."""
        return self.values[-count:] if len(self.values) >= count else []


class Trace:
    """The metrics of a run that the rules read, each as a `Series`; an absent metric is an empty series.

    Attributes:
        texts: the latest value of each metric that is a text.
    """

    def __init__(self, baseline: int = BASELINE, window: int = WINDOW) -> None:
        self._sizes = (baseline, window)
        self._series: dict[str, Series] = {}
        self.texts: dict[str, str] = {}

    def __getitem__(self, metric: str) -> Series:
        if metric not in self._series:
            self._series[metric] = self._new(metric)
        return self._series[metric]

    def _new(self, metric: str) -> Series:
        baseline, window = self._sizes
        if metric in _MEANS:
            return Series(baseline, 2 * window, fmean)
        return Series(_SPARSE_BASELINE, _SPARSE_WINDOW) if metric.startswith(_SPARSE) else Series(baseline, window)

    def restart(self) -> None:
        """Forget the values of every metric that depends on the environments of training."""
        self._series = {name: one for name, one in self._series.items() if name.startswith(_KEPT_APART)}

    def add(self, metrics: Mapping[str, Any], names: frozenset[str]) -> None:
        """Append one step's values of the metrics in `names`; a value that is missing or not finite is left out."""
        self.texts |= {name: one for name in names if isinstance(one := metrics.get(name), str)}
        found = {name: value for name in names if (value := number(metrics, name)) is not None}
        errors = {
            rate: _binomial_error(found[rate], found[count])
            for rate, count in COUNTS.items()
            if rate in found and found.get(count, 0.0) >= 1
        }
        if ACCURACY in found and 0 <= found.get(CHANCE, 1.0) < 1:
            share = 1 - found[CHANCE]
            found[SKILL] = (found[ACCURACY] - found[CHANCE]) / share
            if ACCURACY in errors:
                errors[SKILL] = errors[ACCURACY] / share
        for name, value in found.items():
            self[name].add(value, errors.get(name))


def _binomial_error(rate: float, count: float) -> float:
    """Standard error of a rate of `count` trials, with one success and one failure added so that it is never 0."""
    share = (rate * count + 1) / (count + 2)
    return math.sqrt(share * (1 - share) / count)


def number(metrics: Mapping[str, Any], name: str) -> float | None:
    """A metric as a finite float; None where it is absent or not finite (metrics.jsonl leaves those out too)."""
    try:
        value = float(metrics[name])
    except (KeyError, TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
