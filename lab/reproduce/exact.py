"""Tests without an assumption on distributions, for the handful of runs that an experiment has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np

__all__ = ["chance_of_a_decision", "sign_flips", "splits"]

_MOST = 20_000
"""Arrangements that are enumerated; with more there is no exact p-value."""

_DIGITS = 9
"""Sums are rounded, so that arrangements with equal sums are equal in any order."""


def sign_flips(values: Sequence[float]) -> float | None:
    """Two-sided p-value of a mean of 0: the share of all flips of signs whose sum is as far from 0.

    Args:
        values: one difference for each pair of runs.

    Returns:
        None for fewer than two values or more than 14.
    """
    found = np.asarray(values, dtype=float)
    if not 2 <= len(found) <= _MOST.bit_length() - 1:
        return None
    signs = np.array(np.meshgrid(*[(-1, 1)] * len(found))).reshape(len(found), -1)
    sums = np.round(np.abs(found @ signs), _DIGITS)
    return float((sums >= np.round(abs(found.sum()), _DIGITS)).mean())


def splits(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Two-sided p-value of no difference: the share of all splits of the runs whose means are as far apart.

    Returns:
        None for fewer than two runs of a side, or more than 20,000 splits.
    """
    pooled, size = np.array([*first, *second], dtype=float), len(first)
    if min(size, len(second)) < 2 or comb(len(pooled), size) > _MOST:
        return None
    sums = np.array([pooled[list(one)].sum() for one in combinations(range(len(pooled)), size)])
    distances = np.round(np.abs(sums / size - (pooled.sum() - sums) / len(second)), _DIGITS)
    return float((distances >= np.round(abs(np.mean(first) - np.mean(second)), _DIGITS)).mean())


def chance_of_a_decision(p_value: float, done: int, seeds: int, level: float) -> float:
    """The chance that the look at all seeds decides, if the difference found so far is the true one.

    Conditional power under the current trend (Lan and Wittes 1988), by the normal approximation.

    Args:
        p_value: two-sided, corrected, of the seeds that are done.
        done: their number, less than `seeds`.
        seeds: all seeds.
        level: of the last look.
    """
    from scipy import stats

    share = done / seeds
    now = float(stats.norm.isf(max(p_value, 1e-12) / 2)) * share**0.5
    expected = now / share
    return float(stats.norm.sf((float(stats.norm.isf(level / 2)) - expected) / (1 - share) ** 0.5))
