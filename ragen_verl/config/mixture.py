"""Assign the groups of a step to environments: a pure function of weights and step, so a resume restores nothing."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

__all__ = ["deal"]

_GOLDEN = 0.6180339887498949
"""The golden ratio minus 1; the multiples of no other number modulo 1 are spread more evenly."""


@lru_cache(maxsize=8)  # it is called once for every group of a step
def deal(weights: tuple[float, ...], groups: int, step: int) -> tuple[int, ...]:
    """The environment of every group of a step, in the order of the environments.

    Systematic sampling (Madow and Madow 1944): the environments lie side by side on a line of length `groups`, each as
    long as its quota, `groups * weight / sum(weights)`; group j plays the environment at j + u, with 0 <= u < 1. Each
    environment then has its quota rounded up or down, and a quota that is a whole number is met in every step. u is
    `step * GOLDEN` modulo 1, so that a quota of a third of a group gives one group in about every third step, and over
    a run the numbers of groups differ from the weights by only a few groups.

    Args:
        weights: each 0 or more, and not all 0; numbers of groups can serve as weights.
        groups: P, groups of the step.
        step: the training step, 1 being the first.

    Returns:
        `groups` indices into `weights`, ascending. An environment of weight 0 is not among them.
    """
    exact = [Fraction(weight) for weight in weights]  # sums of floats would misplace the borders
    total = sum(exact)
    ends = [groups * end / total for end in accumulate(exact)]
    offset = Fraction(step * _GOLDEN % 1)
    return tuple(bisect_right(ends, position + offset) for position in range(groups))
