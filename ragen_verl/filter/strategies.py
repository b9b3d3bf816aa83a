"""The strategies: which of the ranked groups are kept, and which trajectories of a group.

Sources: StarPO-S (arXiv 2504.20073, section 4) for top-k; RAGEN-2's SNR-adaptive filtering (arXiv 2604.06268) and its
released options for top-p, min-p, absolute top-k, percentile range and selection within a group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Interval

from ragen_verl.errors import RecipeError
from ragen_verl.filter.registry import Candidates, strategy
from ragen_verl.values import Accepts

__all__ = [
    "everything",
    "keep_count",
    "min_p",
    "most_varied",
    "percentile",
    "top_k",
    "top_k_count",
    "top_p",
    "within_group",
]

_PERCENTS = Accepts(
    lambda part: len(part) == 2 and 0 <= part[0] < part[1] <= 100,
    "two numbers from 0 to 100, the lower one first, such as [0, 25]",
)


def keep_count(fraction: float, groups: int) -> int:
    """k = int(fraction * P); a product that rounding puts just below a whole number counts as that number."""
    return math.floor(fraction * groups + 1e-9)


@strategy("none", ranks=False, least=2, can_be_empty=False)
def everything(candidates: Candidates) -> slice:
    """Every group, but groups of one only where all are: a baseline over one return is that return."""
    return slice(None)


@strategy("top_k", can_be_empty=False)
def top_k(candidates: Candidates, *, value: Annotated[float, Interval(gt=0, le=1)] = 0.25) -> slice:
    """The first k = int(value * P), at least one; P is without what dynamic sampling adds (StarPO-S)."""
    return slice(0, max(1, keep_count(value, candidates.total)))


@strategy("top_k_count", can_be_empty=False)
def top_k_count(candidates: Candidates, *, value: Annotated[int, Ge(1)]) -> slice:
    """The first k = value groups."""
    return slice(0, value)


def _check_top_p(given: Mapping[str, Any]) -> None:
    mass = given.get("mass", "linear")
    for key, wanted in (("temperature", "softmax"), ("slack", "linear")):
        if key in given and mass != wanted:
            raise RecipeError(
                f"ragen.filter.{key} is {given[key]!r} but ragen.filter.mass is {mass}, so it would do nothing: "
                f"set it to null, or ragen.filter.mass to {wanted}."
            )


@strategy("top_p", check=_check_top_p)
def top_p(
    candidates: Candidates,
    *,
    value: Annotated[float, Interval(gt=0, le=1)] = 0.9,
    mass: Literal["linear", "softmax"] = "linear",
    temperature: Annotated[float, Gt(0)] = 1.0,
    slack: Annotated[float, Ge(0)] = 0.0,
) -> slice:
    """The shortest prefix with at least the share `value` of all mass, at least one group; all of them at 1 (RAGEN-2).

    Linear mass is the score itself, 0 where it is negative. Softmax mass is exp(score / temperature), normalised: it
    depends on the scores' unit. With `largest` off, the ranking starts at the lowest score and softmax mass is
    exp(-score / temperature). If no group has mass, all have the same.

    Args:
        candidates: the groups.
        value: the share.
        mass: `linear` or `softmax`.
        temperature: the temperature of the softmax, in the unit of the score.
        slack: subtracted from the linear threshold, in the unit of the score; RAGEN-2's released code has 0.01. Above
            0, the selection is the same as in that code: groups without a score above 0 are never reached, and nothing
            is selected where the threshold is 0 or less.
    """
    scores = candidates.scores
    if value >= 1:
        return slice(None)
    if slack:
        threshold = value * scores.sum() - slack
        before = np.cumsum(scores) - scores
        wanted = (before < threshold) & (scores > 0)
        count = len(scores) if wanted.all() else int(wanted.argmin())
        return slice(0, count if scores[:count].sum() >= threshold else 0)
    if mass == "softmax":
        exponent = (scores if candidates.largest else -scores) / temperature
        masses = np.exp(exponent - exponent.max())
    else:
        masses = np.maximum(scores, 0.0)
        if not masses.any():
            masses = np.ones(len(scores))
        masses = masses / masses.max()  # so that a sum of the largest doubles is finite
    reached = np.cumsum(masses)
    # the tolerance makes a share count as reached when only the rounding of the sum is missing
    return slice(0, 1 + int(np.searchsorted(reached, value * reached[-1] * (1 - 1e-12))))


@strategy("min_p", shares=True, can_be_empty=False)
def min_p(candidates: Candidates, *, value: Annotated[float, Interval(gt=0, le=1)]) -> np.ndarray:
    """Groups whose score is at least value times the highest; with `largest` off, at most the lowest / value."""
    scores = candidates.scores
    return scores >= scores[0] * value if candidates.largest else scores <= scores[0] / value


@strategy("percentile", can_be_empty=False)
def percentile(candidates: Candidates, *, range: Annotated[tuple[float, ...], _PERCENTS]) -> slice:
    """Ranks from `range[0]` to `range[1]` percent, rounded half up; neighbouring ranges share no group.

    If a range rounds to no group, the group at its middle is taken.
    """
    count = len(candidates.scores)
    start, stop = (math.floor(edge * count / 100 + 0.5 + 1e-9) for edge in range)
    if start == stop:
        start = min(math.floor(sum(range) / 2 * count / 100), count - 1)
        stop = start + 1
    return slice(start, stop)


@strategy("within_group", selects="trajectories", ranks=False, least=2, can_be_empty=False)
def within_group(candidates: Candidates, *, value: Annotated[float, Interval(gt=0, le=1)] = 0.5) -> np.ndarray:
    """Of every group the int(value * N) trajectories whose returns have the largest variance (RAGEN-2, table 7)."""
    starts = np.cumsum([0, *(len(one) for one in candidates.returns)])
    parts = [start + most_varied(one, value) for start, one in zip(starts, candidates.returns, strict=False)]
    return np.concatenate(parts)


def most_varied(returns: np.ndarray, fraction: float) -> np.ndarray:
    """The k = int(fraction * N) trajectories whose returns have the largest variance, at least two; indices ascending.

    The best subset is always the j lowest and the k - j highest for some j, so only k + 1 subsets are compared.

    Args:
        returns: raw returns of one group, float64 of shape (N,).
        fraction: share of the trajectories that stays, above 0 and at most 1.
    """
    count = min(len(returns), max(2, keep_count(fraction, len(returns))))
    order = np.argsort(returns, kind="stable")
    # measured from the group's mean, so that a large offset costs no precision
    values = returns[order] - returns.mean()
    best, chosen = -1.0, order
    for low in range(count + 1):
        parts = np.r_[0:low, len(order) - (count - low) : len(order)]
        variance = float(np.var(values[parts]))
        if variance > best * (1 + 1e-12) + 1e-30:
            best, chosen = variance, order[parts]
    return np.sort(chosen)
