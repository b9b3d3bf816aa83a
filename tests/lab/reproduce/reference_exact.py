"""Exact p-values by loops."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb


def sign_flips(values: list[int]) -> Fraction:
    far = [abs(sum(s * x for s, x in zip(signs, values, strict=True))) for signs in _signs(len(values))]
    return Fraction(sum(one >= abs(sum(values)) for one in far), len(far))


def _signs(count: int) -> list[tuple[int, ...]]:
    return list(itertools.product((-1, 1), repeat=count))


def splits(first: list[int], second: list[int]) -> Fraction:
    pooled, found = first + second, abs(Fraction(sum(first), len(first)) - Fraction(sum(second), len(second)))
    hits = total = 0
    for chosen in itertools.product((True, False), repeat=len(pooled)):
        if sum(chosen) != len(first):
            continue
        one = [x for x, inside in zip(pooled, chosen, strict=True) if inside]
        other = [x for x, inside in zip(pooled, chosen, strict=True) if not inside]
        hits += abs(Fraction(sum(one), len(one)) - Fraction(sum(other), len(other))) >= found
        total += 1
    return Fraction(hits, total)


def binomial(hits: int, runs: int, share: Fraction) -> Fraction:
    """The summed chance of all counts that are as improbable as the one seen."""
    chances = [comb(runs, k) * share**k * (1 - share) ** (runs - k) for k in range(runs + 1)]
    return sum((one for one in chances if one <= chances[hits]), Fraction(0))
