"""How the groups of a step are dealt to environments: a pure function of weights and step, with nothing to restore."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

GOLDEN = 0.6180339887498949
"""The golden ratio's fraction: of all numbers, its multiples modulo 1 leave the most even gaps."""


@lru_cache(maxsize=8)  # the groups of a step are asked for one by one
def deal(weights: tuple[float, ...], groups: int, step: int) -> tuple[int, ...]:
    """The environment of every group of a step, in the order of the environments.

    Systematic sampling (Madow and Madow 1944): the environments lie side by side on a line of length `groups`, each as
    long as its quota, `groups * weight / sum(weights)`; group j is the environment at j + u, with 0 <= u < 1. Each
    then has its quota rounded up or down, and a quota that is a whole number is met in every step. u is
    `step * GOLDEN` modulo 1, so that a quota of a third of a group is a group in every third step or so, and the
    shares of a run are those of the weights to within a few groups.

    Args:
        weights: 0 or more each, and not all 0; group counts are weights too.
        groups: P, groups of the step.
        step: the training step, 1 being the first.

    Returns:
        `groups` indices into `weights`, ascending. An environment of weight 0 is not among them.
    """
    exact = [Fraction(weight) for weight in weights]  # sums of floats would misplace the borders
    total = sum(exact)
    ends = [groups * end / total for end in accumulate(exact)]
    offset = Fraction(step * GOLDEN % 1)
    return tuple(bisect_right(ends, position + offset) for position in range(groups))
