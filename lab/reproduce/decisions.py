"""Decisions from estimates: does a level agree with a published one, does a difference have the claimed direction?"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np
from ragen_lab.reproduce.estimates import Interval, mean_of_runs
from ragen_lab.reproduce.experiment_protocol import LEVEL
from scipy import stats

__all__ = ["Band", "Decision", "best_of_flat", "direction", "level"]

_LEVEL_CONFIDENCE = 0.90


class Decision(str, Enum):
    """The result of an experiment: a level is `PASS` or `FAIL`, a direction `CONFIRMED` or `CONTRADICTED`.

    A pilot, whose runs chose the setting of others, has no verdict.
    """

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"
    PILOT = "pilot"

    def __str__(self) -> str:
        return self.value


Band = tuple[float, float]


def direction(value: float, adjusted_p: float, expected: str, level: float = LEVEL) -> Decision:
    """Whether a difference has the direction that is claimed.

    Args:
        value: the difference.
        adjusted_p: its p-value, corrected for the other comparisons of the table (`holm`). Without others, a value of
            0.05 or less means that 0 is outside the 95 % interval.
        expected: `higher` or `lower`.
        level: of the two-sided test.

    Returns:
        `CONFIRMED` or `CONTRADICTED`, or `UNDECIDED` if the difference may be 0.
    """
    if adjusted_p > level:
        return Decision.UNDECIDED
    return Decision.CONFIRMED if (value > 0) == (expected == "higher") else Decision.CONTRADICTED


def level(values: Sequence[float], published: float, noise: float) -> tuple[Decision, Interval, Band]:
    """Whether runs reach a published number.

    The band holds the values that our mean may have if the true levels are equal. It is the published number plus and
    minus 1.645 times the root of the summed squares of the paper's noise and of our standard error. The result is
    `PASS` if our 90 % interval lies inside the band, and `FAIL` if the two do not overlap. The t-interval of few runs
    is wider than the part of the band that comes from the same error, so runs cannot pass only because they are few or
    noisy.

    Args:
        values: the published statistic of our runs, one number for each run.
        published: the paper's number.
        noise: the standard deviation of the paper's number between runs.

    Returns:
        The decision, our interval (90 %) and the band.
    """
    ours = mean_of_runs(values, _LEVEL_CONFIDENCE)
    error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
    half = float(stats.norm.ppf((1 + _LEVEL_CONFIDENCE) / 2)) * (noise**2 + error**2) ** 0.5
    band = (published - half, published + half)
    if ours.low is None or ours.high is None:
        return Decision.UNDECIDED, ours, band
    if band[0] <= ours.low and ours.high <= band[1]:
        return Decision.PASS, ours, band
    apart = ours.high < band[0] or band[1] < ours.low
    return Decision.FAIL if apart else Decision.UNDECIDED, ours, band


def best_of_flat(rate: float, states: int, evaluations: int) -> float:
    """How much the best of several evaluations exceeds a success rate that never changes.

    Each evaluation counts as `states` independent episodes. For 21 evaluations of 256 episodes and a rate of 0.2 the
    result is 0.048.

    Args:
        rate: the success rate, from 0 to 1.
        states: the number of episodes in an evaluation.
        evaluations: the number of evaluations.
    """
    below = stats.binom.cdf(np.arange(states), states, rate) ** evaluations
    return float((1 - below).sum() / states - rate)
