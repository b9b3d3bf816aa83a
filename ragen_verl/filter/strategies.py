"""Which groups are kept, once they are ranked: every strategy takes a contiguous part of the ranking.

Sources: StarPO-S (arXiv 2504.20073, section 4) for top-k; RAGEN-2's SNR-adaptive filtering and its released options
for top-p, min-p, absolute top-k, percentile range and selection within a group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Rule:
    """What a filter does, every value given.

    Attributes:
        strategy: `none`, `within_group` or a name in `STRATEGIES`.
        value: the strategy's number (see `STRATEGIES` and `within_group`); nan for the strategies that have none.
        range: `percentile`'s part of the ranking, in percent from the first rank.
        score: a name in `ragen_verl.filter.SCORES`.
        largest: whether the highest score ranks first; otherwise the lowest.
        drop_zero_variance: groups whose raw returns do not differ, or of whose spread nothing is known, are no
            candidates.
        softmax: `top_p` adds up a softmax of the scores instead of the scores.
        temperature: of that softmax, in the unit of the score.
        min_members: without a strategy, groups with fewer members that count are left out while others remain: a
            group baseline over one return is that return itself. 1 where groups have one member by design.
        limit: at most this many candidates, earlier ones first; None for all.
    """

    strategy: str = "none"
    value: float = math.nan
    range: tuple[float, float] = (0.0, 100.0)
    score: str = "std"
    largest: bool = True
    drop_zero_variance: bool = False
    softmax: bool = False
    temperature: float = 1.0
    min_members: int = 2
    limit: int | None = None


def keep_count(fraction: float, groups: int) -> int:
    """k = int(fraction * P), and not one less where the product falls short of a whole number by rounding."""
    return math.floor(fraction * groups + 1e-9)


def top_k(ranked: np.ndarray, rule: Rule, groups: int) -> slice:
    """The first k = int(value * P), at least one; P counts every group of the step."""
    return slice(0, max(1, keep_count(rule.value, groups)))


def top_k_count(ranked: np.ndarray, rule: Rule, groups: int) -> slice:
    """The first k = value groups."""
    return slice(0, int(rule.value))


def top_p(ranked: np.ndarray, rule: Rule, groups: int) -> slice:
    """The shortest prefix with at least the share `value` of all mass, at least one group; all of them at 1.

    Linear mass is the score itself, 0 where it is negative. Softmax mass is exp(score / temperature), normalised: it
    depends on the scores' unit, and with small differences it is nearly the same for every group. With `largest` off,
    the ranking starts at the lowest score and softmax mass at exp(-score / temperature). No mass at all is equal mass.
    """
    if rule.value >= 1:
        return slice(0, len(ranked))
    if rule.softmax:
        exponent = (ranked if rule.largest else -ranked) / rule.temperature
        mass = np.exp(exponent - exponent.max())
    else:
        mass = np.maximum(ranked, 0.0)
        if not mass.any():
            mass = np.ones(len(ranked))
        mass = mass / mass.max()  # so that a sum of the largest doubles is finite
    reached = np.cumsum(mass)
    # a share that is met exactly is met, whatever the last bit of the sum says
    return slice(0, 1 + int(np.searchsorted(reached, rule.value * reached[-1] * (1 - 1e-12))))


def min_p(ranked: np.ndarray, rule: Rule, groups: int) -> slice:
    """Scores of at least value times the highest; with `largest` off, of at most the lowest divided by value."""
    bound = ranked[0] * rule.value if rule.largest else ranked[0] / rule.value
    inside = ranked >= bound if rule.largest else ranked <= bound
    return slice(0, max(1, int(inside.sum())))


def percentile(ranked: np.ndarray, rule: Rule, groups: int) -> slice:
    """Ranks from `range[0]` to `range[1]` percent, rounded half up; neighbouring ranges share no group.

    A range that rounds to nothing takes the group its middle falls on.
    """
    count = len(ranked)
    start, stop = (math.floor(edge * count / 100 + 0.5 + 1e-9) for edge in rule.range)
    if start == stop:
        start = min(math.floor(sum(rule.range) / 2 * count / 100), count - 1)
        stop = start + 1
    return slice(start, stop)


STRATEGIES: dict[str, Callable[[np.ndarray, Rule, int], slice]] = {
    "top_k": top_k,
    "top_k_count": top_k_count,
    "top_p": top_p,
    "min_p": min_p,
    "percentile": percentile,
}
"""Name in a recipe -> (scores of the candidates, best first, at least one; rule; P) -> the kept part."""

SELECTORS = ("none", *STRATEGIES, "within_group")
"""Every strategy a recipe can name."""


def rank(scores: np.ndarray, largest: bool) -> np.ndarray:
    """Indices from the first rank to the last, int64 of shape (groups,); earlier ranks first in a tie."""
    return np.argsort(-scores if largest else scores, kind="stable")


def within_group(returns: np.ndarray, fraction: float) -> np.ndarray:
    """The k = int(fraction * N) members whose returns have the largest variance, at least two; indices ascending.

    The best subset is always the j lowest and the k - j highest for some j, so only k + 1 subsets are compared.

    Args:
        returns: raw returns of one group, float64 of shape (N,).
        fraction: share of the members that stays, above 0 and at most 1.
    """
    count = min(len(returns), max(2, keep_count(fraction, len(returns))))
    order = np.argsort(returns, kind="stable")
    # measured from the middle of the group, so that a large offset costs no digits
    values = returns[order] - returns.mean()
    best, chosen = -1.0, order
    for low in range(count + 1):
        parts = np.r_[0:low, len(order) - (count - low) : len(order)]
        variance = float(np.var(values[parts]))
        if variance > best * (1 + 1e-12) + 1e-30:
            best, chosen = variance, order[parts]
    return np.sort(chosen)
