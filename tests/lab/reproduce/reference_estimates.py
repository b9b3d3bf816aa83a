"""The same estimates by counting and by loops."""

from __future__ import annotations

import itertools


def interquartile_mean(values: list[float]) -> float:
    cut = len(values) // 4
    middle = sorted(values)[cut : len(values) - cut]
    return sum(middle) / len(middle)


def probability_of_improvement(first: list[list[float]], second: list[list[float]]) -> float:
    tasks = []
    for one, other in zip(zip(*first, strict=True), zip(*second, strict=True), strict=True):
        wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a in one for b in other]
        tasks.append(sum(wins) / len(wins))
    return sum(tasks) / len(tasks)


def clustered_variance(differences: list[list[float]]) -> float:
    """Of the mean of a table of seeds (rows) by states: sum of products of residuals that share a seed or a state."""
    cells = [(s, i, x) for s, row in enumerate(differences) for i, x in enumerate(row)]
    mean = sum(x for *_, x in cells) / len(cells)
    seeds, states = len(differences), len(differences[0])

    def part(shares: int, clusters: int) -> float:
        pairs = [
            (a[2] - mean) * (b[2] - mean)
            for a in cells
            for b in cells
            if (shares == 2 and a[:2] == b[:2]) or (shares < 2 and a[shares] == b[shares])
        ]
        return sum(pairs) / len(cells) ** 2 * clusters / (clusters - 1)

    return max(part(0, seeds), part(0, seeds) + part(1, states) - part(2, seeds * states))


def observed_less_expected(first: list[tuple[int, bool]], second: list[tuple[int, bool]]) -> float:
    """Collapses of the first side, less its share of those at risk at every step with a collapse."""
    total = 0.0
    for at in sorted({step for step, died in [*first, *second] if died}):
        risk = [sum(step >= at for step, _ in side) for side in (first, second)]
        died = [sum(step == at and dead for step, dead in side) for side in (first, second)]
        total += died[0] - sum(died) * risk[0] / sum(risk)
    return total


def exact_log_rank(first: list[tuple[int, bool]], second: list[tuple[int, bool]]) -> float:
    """Two-sided p-value over all exchanges: twice the smaller tail."""
    runs = [*first, *second]
    found = observed_less_expected(first, second)
    values = []
    for chosen in itertools.combinations(range(len(runs)), len(first)):
        rest = [runs[i] for i in range(len(runs)) if i not in chosen]
        values.append(observed_less_expected([runs[i] for i in chosen], rest))
    tails = [sum(v <= found + 1e-9 for v in values), sum(v >= found - 1e-9 for v in values)]
    return min(1.0, 2 * min(tails) / len(values))


def holm(p_values: list[float]) -> list[float]:
    """By the definition: the largest, over the p-values up to one's own, of p times the number not smaller than it."""
    order = sorted(p_values)
    return [min(1.0, max((len(order) - i) * p for i, p in enumerate(order) if p <= own)) for own in p_values]
