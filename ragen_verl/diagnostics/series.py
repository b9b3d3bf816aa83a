"""A metric over a run: its early baseline, the noise around it, where it is now, how good it ever was."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from ragen_verl.names import (
    DRIFT,
    EPISODES,
    GENERALISATION,
    HELD_OUT,
    HELD_OUT_SUCCESS,
    MUTUAL_INFORMATION,
    REWARD_MEAN,
    REWARD_STD,
    TRAIN_SUCCESS,
)

BASELINE = 10  # steps: the length of RAGEN-2's baseline
WINDOW = 5  # steps: a median of five needs three of them to move
NOISE = 4.0  # standard errors that a metric has to be away from its baseline: a run looks a thousand times
# metrics that are not measured at every step: as many values, not steps
SPARSE_BASELINE, SPARSE_WINDOW = 3, 3
SPARSE = (f"{MUTUAL_INFORMATION}/", f"{DRIFT}/", f"{HELD_OUT}/", f"{GENERALISATION}/")
KEPT_APART = (f"{DRIFT}/", f"{HELD_OUT}/", f"{GENERALISATION}/")  # do not depend on what training plays

# Measurements differ in the number of prompts, so accuracy is compared with its own chance: 0 is guessing.
ACCURACY, CHANCE, SKILL = (f"{MUTUAL_INFORMATION}/retrieval_{name}" for name in ("accuracy", "chance", "skill"))
CONDITIONAL_ENTROPY = f"{MUTUAL_INFORMATION}/conditional_entropy"

COUNTS = {HELD_OUT_SUCCESS: f"{HELD_OUT}/{EPISODES}", ACCURACY: f"{MUTUAL_INFORMATION}/responses"}
"""Rate -> the metric that says how many episodes or samples it is of, which gives its binomial error."""

PERFORMANCE = (TRAIN_SUCCESS, REWARD_MEAN)
# These have no wild outliers and, where success is rare, are 0 for steps on end, which a median cannot see: means over
# twice the window.
MEANS = (*PERFORMANCE, REWARD_STD)

# of a normal noise, in standard deviations and variances: the mean and the median distance between successive values;
# the variance of a mean and of a median of n values, times n
DISTANCE = {fmean: 1.128, median: 0.954}
VARIANCE = {fmean: 1.0, median: math.pi / 2}
RECENT = 50  # values, or windows, that noise is estimated from
LEAST_CENTERS = 12
BEND = 0.6745 * math.sqrt(1.5)  # median of |b - (a + c) / 2| for independent values of standard deviation 1


class Series:
    """One metric over a run.

    Args:
        baseline: how many first values the baseline is made of.
        window: how many last values say where the metric is now.
        center: median or mean, of either.

    Attributes:
        values: all of them, in order.
        errors: their standard errors as far as these are known from sample counts; None where they are not.
        recent: centre of the last `window` values; None while there are fewer.
        best: highest `recent` so far.
        baseline: centre of the first values; None until there is a whole window after them.
        std: standard deviation of the noise in the first values, from the distances between successive ones (a
            trend across the baseline, common at a run's start, would widen any deviation from the centre and hide
            what follows); 0 until there is a baseline.
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
        self._centers: list[float] = []  # of the windows, side by side
        self._slow = (0, 0.0)  # how many of them there were, and what `slow_noise` was

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
        """`std`, but of the last values: a rate varies more around a half than near 0, where many runs start."""
        return self._scatter(self.values[-RECENT:])

    @property
    def slow_noise(self) -> float:
        """Standard deviation of a window's centre from its neighbours'; 0 while there are too few windows.

        Noise that outlasts a step is larger here than the distances of successive values tell. A steady trend cancels:
        each centre is compared with the mean of the two beside it.
        """
        if len(self._centers) < LEAST_CENTERS:
            return 0.0
        if self._slow[0] != len(self._centers):
            recent = self._centers[-RECENT:]
            bends = [abs(b - (a + c) / 2) for a, b, c in zip(recent, recent[1:], recent[2:], strict=False)]
            self._slow = (len(self._centers), median(bends) / BEND)
        return self._slow[1]

    def _scatter(self, values: Sequence[float]) -> float:
        distances = [abs(b - a) for a, b in pairwise(values)]
        return self._center(distances) / DISTANCE[self._center] if len(distances) > 1 else 0.0

    @property
    def error(self) -> float:
        """Standard error of `recent - baseline`: from sample counts, else from the noise of the run's first values."""
        parts = self._variance(slice(0, self._first)), self._variance(slice(-self._window, None))
        if None not in parts:
            return math.sqrt(sum(parts))
        # the distances of the baseline alone are few to tell the noise by
        before = self.values[: max(0, min(3 * self._first, len(self.values) - 2 * self._window))]
        noise = max(self.std, self._scatter(before))
        return noise * math.sqrt(VARIANCE[self._center] * (1 / self._first + 1 / self._window))

    @property
    def fall_error(self) -> float | None:
        """Standard error of `best - recent` from sample counts; None where these are not known."""
        parts = self._best_variance, self._variance(slice(-self._window, None))
        return None if None in parts else math.sqrt(sum(parts))

    def _variance(self, part: slice) -> float | None:
        """Variance of the centre of some values, from their own errors; None where one is not known."""
        errors = self.errors[part]
        if None in errors or not errors:
            return None
        return VARIANCE[self._center] * fmean([one**2 for one in errors]) / len(errors)

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
        """The higher one of `recent` and the centre of the window before it, so one low window alone does not count."""
        if len(self.values) < 2 * self._window:
            return self.recent
        return max(self.recent, self._center(self.values[-2 * self._window : -self._window]))

    def last(self, count: int) -> list[float]:
        """The last `count` values; empty while there are fewer."""
        return self.values[-count:] if len(self.values) >= count else []


class Trace:
    """The metrics of a run that the rules read, each a `Series`; an absent metric is an empty one."""

    def __init__(self, baseline: int = BASELINE, window: int = WINDOW) -> None:
        self._sizes = (baseline, window)
        self._series: dict[str, Series] = {}

    def __getitem__(self, metric: str) -> Series:
        if metric not in self._series:
            self._series[metric] = self._new(metric)
        return self._series[metric]

    def _new(self, metric: str) -> Series:
        baseline, window = self._sizes
        if metric in MEANS:
            return Series(baseline, 2 * window, fmean)
        return Series(SPARSE_BASELINE, SPARSE_WINDOW) if metric.startswith(SPARSE) else Series(baseline, window)

    def restart(self) -> None:
        """Forget the values of every metric that depends on the environments of training."""
        self._series = {name: one for name, one in self._series.items() if name.startswith(KEPT_APART)}

    def add(self, metrics: Mapping[str, Any], names: frozenset[str]) -> None:
        """Append one step's values of the metrics in `names`; what is missing or no finite number is left out."""
        found = {name: value for name in names if (value := number(metrics, name)) is not None}
        errors = {
            rate: binomial_error(found[rate], found[count])
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


def binomial_error(rate: float, count: float) -> float:
    """Standard error of a rate of `count` trials; as if one more had succeeded and one had failed, so it is never 0."""
    share = (rate * count + 1) / (count + 2)
    return math.sqrt(share * (1 - share) / count)


def number(metrics: Mapping[str, Any], name: str) -> float | None:
    """A metric as a finite float; None where it is absent or something else, which metrics.jsonl leaves out too."""
    try:
        value = float(metrics[name])
    except (KeyError, TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
