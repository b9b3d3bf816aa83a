"""Statistics of measured rates: intervals, pass@k, and paired comparisons of two policies on the same initial states.

Episodes of one initial state are not independent, so everything here counts initial states, not episodes. scipy is
imported by what needs it, since that takes a second, and the pages need intervals of rates alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import NormalDist
from typing import TypeVar

import numpy as np

__all__ = [
    "CONFIDENCE",
    "Comparison",
    "Estimate",
    "bounded",
    "difference",
    "grouped",
    "mean",
    "paired",
    "pass_at_k",
    "pass_hat_k",
    "rate",
    "stratified",
    "wilson",
]

CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

_Key = TypeVar("_Key", bound=Hashable)
_Thing = TypeVar("_Thing")


def grouped(things: Iterable[_Thing], key: Callable[[_Thing], _Key]) -> dict[_Key, list[_Thing]]:
    """Key -> the things that have it, all in the order in which they come."""
    found: dict[_Key, list[_Thing]] = defaultdict(list)
    for one in things:
        found[key(one)].append(one)
    return dict(found)


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval.

    Attributes:
        value: the mean over initial states of the means over their episodes.
        low, high: ends of the 95 % interval; None for fewer than two states.
        states: the number of initial states.
    """

    value: float
    low: float | None
    high: float | None
    states: int


def rate(outcomes: Sequence[Sequence[bool]]) -> Estimate:
    """A success rate.

    Args:
        outcomes: for each initial state, whether each of its episodes succeeded; at least one state, each with at
            least one episode.

    Returns:
        With one episode for every state, and where all episodes have the same outcome, the interval of Wilson (1927)
        over the states, which is valid near 0 and 1; else the t-interval over the states' means, cut to [0, 1].
    """
    if all(len(one) == 1 for one in outcomes) or len({end for one in outcomes for end in one}) == 1:
        wins = sum(one[0] for one in outcomes)
        return Estimate(wins / len(outcomes), *wilson(wins, len(outcomes)), len(outcomes))
    return bounded(mean([float(np.mean(one)) for one in outcomes]))


def wilson(wins: int, count: int) -> tuple[float, float]:
    """The ends of the 95 % interval of a rate of `wins` in `count` independent trials, at least one (Wilson 1927)."""
    share, unseen = wins / count, _Z**2 / count
    middle = (share + unseen / 2) / (1 + unseen)
    half = _Z * (share * (1 - share) / count + unseen / (4 * count)) ** 0.5 / (1 + unseen)
    return (0.0 if wins == 0 else middle - half), (1.0 if wins == count else middle + half)


def mean(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """A mean over initial states with its t-interval.

    Args:
        values: one number for each initial state, at least one.
        confidence: of the interval.
    """
    value, count = float(np.mean(values)), len(values)
    if count < 2:
        return Estimate(value, None, None, count)
    from scipy import stats

    half = float(stats.sem(values) * stats.t.ppf((1 + confidence) / 2, count - 1))
    return Estimate(value, value - half, value + half, count)


def difference(first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The first mean minus the second, of different initial states, with the interval of Welch (1947).

    Args:
        first, second: one number for each initial state, at least two of each.
        confidence: of the interval.
    """
    from scipy import stats

    value = float(np.mean(first) - np.mean(second))
    parts = [float(np.var(one, ddof=1)) / len(one) for one in (first, second)]
    half = 0.0
    if sum(parts):
        freedom = sum(parts) ** 2 / sum(
            part**2 / (len(one) - 1) for part, one in zip(parts, (first, second), strict=True)
        )
        half = float(sum(parts) ** 0.5 * stats.t.ppf((1 + confidence) / 2, freedom))
    return Estimate(value, value - half, value + half, len(first) + len(second))


def stratified(strata: Sequence[Sequence[float]], ends: tuple[float, float] | None = None) -> Estimate:
    """The mean of the strata's means; each stratum has the same weight, independently of its size.

    Args:
        strata: for each stratum one number for each of its initial states; at least one stratum, at least two states.
        ends: the lowest and the highest possible number. With them a stratum whose numbers are all equal adds to the
            interval: at most a share z^2 / (n + z^2) of its unseen states differs, as in the interval of Wilson (1927).

    Returns:
        The estimate with the t-interval of the strata's variances, degrees of freedom after Satterthwaite (1946). The
        parts of an interval are combined by their squares (MOVER: Zou and Donner 2008).
    """
    from scipy import stats

    value, states = float(np.mean([np.mean(one) for one in strata])), sum(len(one) for one in strata)
    parts = [float(np.var(one, ddof=1)) / len(one) / len(strata) ** 2 for one in strata]
    half = 0.0
    if sum(parts):
        freedom = sum(parts) ** 2 / sum(part**2 / (len(one) - 1) for part, one in zip(parts, strata, strict=True))
        half = float(sum(parts) ** 0.5 * stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
    equal = [one for one, part in zip(strata, parts, strict=True) if not part] if ends else []
    unseen = [(one[0], _Z**2 / (len(one) + _Z**2) / len(strata)) for one in equal]
    low, high = (sum((share * (end - number)) ** 2 for number, share in unseen) for end in ends or (0.0, 0.0))
    return Estimate(value, value - (half**2 + low) ** 0.5, value + (half**2 + high) ** 0.5, states)


def bounded(one: Estimate) -> Estimate:
    """The same estimate with the ends of its interval cut to [0, 1]."""
    if one.low is None or one.high is None:
        return one
    return Estimate(one.value, max(0.0, one.low), min(1.0, one.high), one.states)


def pass_at_k(outcomes: Sequence[Sequence[bool]], k: int) -> float | None:
    """The chance that at least one of k episodes of an initial state succeeds, averaged over the states.

    The unbiased estimator of Chen et al. (arXiv 2107.03374, equation 1): 1 - C(n - c, k) / C(n, k) for c successes of
    n episodes. None where some state has fewer than k episodes.
    """
    if any(len(one) < k for one in outcomes):
        return None
    return float(np.mean([1 - comb(len(one) - sum(one), k) / comb(len(one), k) for one in outcomes]))


def pass_hat_k(outcomes: Sequence[Sequence[bool]], k: int) -> float | None:
    """The chance that all of k episodes of an initial state succeed, averaged over the states: pass^k.

    The unbiased estimator of tau-bench (arXiv 2406.12045, section 3): C(c, k) / C(n, k) for c successes of n episodes.
    None where some state has fewer than k episodes.
    """
    if any(len(one) < k for one in outcomes):
        return None
    return float(np.mean([comb(sum(one), k) / comb(len(one), k) for one in outcomes]))


@dataclass(frozen=True)
class Comparison:
    """A comparison of two policies on the same initial states.

    Attributes:
        difference: the first policy's mean minus the second's, with its interval over states.
        p_value: the two-sided p-value of the sign-flip permutation test over states; 1.0 where no state differs.
    """

    difference: Estimate
    p_value: float


def paired(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Comparison:
    """Compare two policies state by state.

    Args:
        first, second: for each initial state the mean of its episodes, in the same order; at least one.
        seed: the seed of the drawn permutations, where there are too many to try all.

    Raises:
        ValueError: the lengths differ, or there is nothing to compare.
    """
    if len(first) != len(second) or not len(first):
        raise ValueError(f"{len(first)} and {len(second)} states cannot be paired")
    differences = np.subtract(first, second)
    if not differences.any():
        return Comparison(mean(differences), 1.0)
    from scipy import stats

    test = stats.permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=9_999,
        rng=np.random.default_rng(seed),
    )
    return Comparison(mean(differences), float(test.pvalue))
