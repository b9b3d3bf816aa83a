"""The law of docs/selection_bias.md: what the variance of a group's returns and its push have in common."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest

CHANCE = 0.25


def covariance(size: int, p: float, low: float) -> float:
    """N Cov(S^2, g) over all outcomes of a group: k pulls of the risky arm, of which w pay 1."""
    mean_g = mean_s = mean_gs = 0.0
    for k, w in product(range(size + 1), repeat=2):
        if w > k:
            continue
        chance = comb(size, k) * p**k * (1 - p) ** (size - k) * comb(k, w) * CHANCE**w * (1 - CHANCE) ** (k - w)
        returns = np.array([1.0] * w + [0.0] * (k - w) + [low] * (size - k))
        risky = np.array([1.0] * k + [0.0] * (size - k))
        g, s = float(((returns - returns.mean()) * (risky - p)).mean()), float(returns.var(ddof=1))
        mean_g, mean_s, mean_gs = mean_g + chance * g, mean_s + chance * s, mean_gs + chance * g * s
    return size * (mean_gs - mean_g * mean_s)


def law(p: float, low: float) -> float:
    outcomes = [(p * CHANCE, 1, 1.0), (p * (1 - CHANCE), 1, 0.0), (1 - p, 0, low)]
    mean = sum(chance * r for chance, _, r in outcomes)
    variance = sum(chance * (r - mean) ** 2 for chance, _, r in outcomes)
    third = sum(chance * (a - p) * (r - mean) ** 3 for chance, a, r in outcomes)
    return third - variance * sum(chance * (a - p) * (r - mean) for chance, a, r in outcomes)


@pytest.mark.parametrize(("p", "low"), [(0.1, 0.15), (0.5, 0.15), (0.1, 0.35), (0.5, 0.35)])
def test_enumerated_groups_approach_the_law(p: float, low: float) -> None:
    far, near = (abs(covariance(size, p, low) - law(p, low)) for size in (8, 32))
    assert near < far / 3 and near < 0.05 * law(p, low)
