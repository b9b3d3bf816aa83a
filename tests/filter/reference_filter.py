"""The filter's strategies written down the slow and obvious way, from their definitions; reference for test_filter."""

from __future__ import annotations

import math
from itertools import combinations


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def variance(values: list[float]) -> float:
    middle = mean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)


SCORES = {
    "std": ("return", 2, lambda values: math.sqrt(variance(values))),
    "variance": ("return", 2, variance),
    "mean": ("return", 1, mean),
    "sum": ("return", 1, math.fsum),
    "entropy": ("entropy", 1, mean),
    "entropy_variance": ("entropy", 2, variance),
    "length": ("length", 1, mean),
}


def kept_groups(batch: list[dict], rule) -> list:
    """Labels of the kept groups, in order of appearance; a trajectory is a dict of group, out, return, ..."""
    labels = list(dict.fromkeys(one["group"] for one in batch))
    members = {label: [one for one in batch if one["group"] == label and not one["out"]] for label in labels}
    left = [label for label in labels if members[label]]
    if rule.drop_zero_variance:
        left = [label for label in left if len({one["return"] for one in members[label]}) > 1]
    if rule.strategy in ("none", "within_group"):
        return [label for label in left if len(members[label]) >= 2] or left
    column, least, statistic = SCORES[rule.score]
    worth = {
        label: statistic([one[column] for one in members[label]]) for label in left if len(members[label]) >= least
    }
    if not worth:
        worth = dict.fromkeys(left, 0.0)
    sign = -1 if rule.largest else 1
    ranked = sorted(worth, key=lambda label: (sign * worth[label], labels.index(label)))
    total = len(labels) if rule.total is None else rule.total
    chosen = set(part(rule.strategy, rule.options, [worth[label] for label in ranked], ranked, total, rule.largest))
    return [label for label in labels if label in chosen]


def part(strategy: str, options: dict, scores: list[float], ranked: list, groups: int, largest: bool) -> list:
    value = options.get("value")
    if not ranked:
        return []
    if strategy == "top_k":
        return ranked[: max(1, math.floor(value * groups + 1e-9))]
    if strategy == "top_k_count":
        return ranked[: int(value)]
    if strategy == "percentile":
        # rank i owns the interval from i to i + 1 of n; a group is in where its middle is
        low, high = options["range"]
        inside = [label for i, label in enumerate(ranked) if low < 100 * (i + 0.5) / len(ranked) <= high]
        return inside or [ranked[min(len(ranked) - 1, math.floor((low + high) / 200 * len(ranked)))]]
    if strategy == "min_p":
        best = scores[0]
        if largest:
            return [label for label, one in zip(ranked, scores, strict=True) if one >= value * best]
        return [label for label, one in zip(ranked, scores, strict=True) if one <= best / value]
    assert strategy == "top_p"
    if value == 1:
        return ranked
    if options["slack"]:
        threshold, total, count = value * math.fsum(scores) - options["slack"], 0.0, 0
        for one in scores:
            if total >= threshold or one <= 0:
                break
            total, count = total + one, count + 1
        return ranked[:count] if total >= threshold else []
    if options["mass"] == "softmax":
        temperature = options["temperature"]
        sign = 1 if largest else -1
        shift = max(sign * one / temperature for one in scores)
        mass = [math.exp(sign * one / temperature - shift) for one in scores]
    else:
        mass = [max(one, 0.0) for one in scores]
        if not any(mass):
            mass = [1.0] * len(scores)
    wanted, total = value * math.fsum(mass), 0.0
    for count, one in enumerate(mass, start=1):
        total += one
        if total >= wanted * (1 - 1e-12):
            return ranked[:count]
    return ranked


def largest_variance(returns: list[float], fraction: float) -> float:
    """The largest variance that any subset of the wanted size has."""
    count = min(len(returns), max(2, math.floor(fraction * len(returns) + 1e-9)))
    return max(variance(list(subset)) if count > 1 else 0.0 for subset in combinations(returns, count))
