"""Does choosing groups by the returns that are then learned from change what is learned? The two-armed bandit, exactly.

A policy pulls the risky arm with probability p. The steady arm pays `low`, the risky one 1 in a quarter of the pulls.
A step has P groups of 8 pulls, of which a filter keeps some; the advantages A of the kept pulls push on the logit of p.
Computed is the expected push of a kept pull, A (arm - p), divided by that of a pull without a filter. 1 is unbiased; a
negative number learns the worse arm. A is `centred` (return minus the mean of the group, or of the kept half) or
`value` (minus the expected return, which a perfect critic says).

Exact: a group is a multinomial count, of which there are 45, and 15 for a half. `top_k`: the chance to be among the
first k of P independent groups is a sum over how many of the others are better or equal. `top_p`: a sum over all
multisets of P scores. For P = 16 those are too many: there it is the mean of seeded draws, with its standard error.

    python benchmarks/filter_bias.py [--draws 1000]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from math import comb, factorial
from pathlib import Path

import numpy as np

from ragen_verl.filter import Rule, select
from ragen_verl.filter.scores import std
from ragen_verl.filter.strategies import keep_count

SIZE, WIN = 8, 0.25
LOWS, PULLS = (0.15, 0.35), (0.1, 0.5)
TOP_K, TOP_P = 0.25, 0.9
RESULT = Path(__file__).parent / "results" / "filter_bias.json"
ADVANTAGES = ("centred", "value")


@dataclass(frozen=True)
class Kind:
    """All groups with the same counts: their probability, score, and push for each kind of advantage."""

    chance: float
    score: float
    push: dict[str, float]
    returns: tuple[float, ...]
    arms: tuple[int, ...]


@cache
def kinds(size: int, p: float, low: float) -> tuple[Kind, ...]:
    """Every count (steady, paid, unpaid) of a group of `size` pulls."""
    found = []
    for paid in range(size + 1):
        for unpaid in range(size + 1 - paid):
            steady = size - paid - unpaid
            ways = factorial(size) // (factorial(steady) * factorial(paid) * factorial(unpaid))
            chance = ways * (1 - p) ** steady * (p * WIN) ** paid * (p * (1 - WIN)) ** unpaid
            returns = np.array([low] * steady + [1.0] * paid + [0.0] * unpaid)
            arms = np.array([0] * steady + [1] * (paid + unpaid))
            push = pushes(returns, arms, p, low)
            found.append(Kind(chance, round(std(returns), 12), push, tuple(returns.tolist()), tuple(arms.tolist())))
    return tuple(found)


def pushes(returns: np.ndarray, arms: np.ndarray, p: float, low: float) -> dict[str, float]:
    """Sum over a group of A (a - p), for both kinds of advantage A."""
    gradient = arms - p
    value = (1 - p) * low + p * WIN  # the value of a critic that has learned the mean
    return {
        "centred": float((returns - returns.mean()) @ gradient),
        "value": float((returns - value) @ gradient),
    }


def expected(groups: tuple[Kind, ...], chances: list[float]) -> dict[str, float]:
    """The mean push of one group, each kind with its chance to be kept."""
    kept = sum(kind.chance * chance for kind, chance in zip(groups, chances, strict=True))
    pairs = list(zip(groups, chances, strict=True))
    return {name: sum(k.chance * c * k.push[name] for k, c in pairs) / kept for name in ADVANTAGES}


def among_first(k: int, others: int, better: float, equal: float, ahead: int = 0, level: int = 0) -> float:
    """The chance to be among the first k.

    Of `others` independent ones each is better or equal with these chances; `ahead` more are better, `level` more are
    equal for sure. Ties are broken at random, as the order of the groups does.
    """
    worse, total = max(0.0, 1 - better - equal), 0.0
    for b in range(max(0, min(k - ahead, others + 1))):
        for e in range(others - b + 1):
            ways = comb(others, b) * comb(others - b, e)
            chance = ways * better**b * equal**e * worse ** (others - b - e)
            total += chance * min(1.0, (k - ahead - b) / (e + 1 + level))
    return total


def top_k(groups: tuple[Kind, ...], k: int, count: int) -> list[float]:
    """The chance of each kind to be among the first k of `count` groups."""
    chances = []
    for one in groups:
        better = sum(kind.chance for kind in groups if kind.score > one.score)
        equal = sum(kind.chance for kind in groups if kind.score == one.score)
        chances.append(among_first(k, count - 1, better, equal))
    return chances


def top_p(groups: tuple[Kind, ...], share: float, count: int) -> list[float]:
    """The chance of each kind to be kept by top-p, over all multisets of `count` scores."""
    scores = sorted({one.score for one in groups}, reverse=True)
    chance = [sum(one.chance for one in groups if one.score == score) for score in scores]
    kept = np.zeros(len(scores))
    for some in combinations_with_replacement(range(len(scores)), count):  # best first
        times = np.bincount(some, minlength=len(scores))
        ways = factorial(count)
        for n in times[times > 0]:
            ways //= factorial(int(n))
        weight = ways * np.prod([chance[i] for i in some])
        reached = np.cumsum([scores[i] for i in some])
        last = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12))) if reached[-1] else first(share, count)
        for i in some[: last + 1]:
            kept[i] += weight
    by_score = {score: k / (count * c) for score, k, c in zip(scores, kept, chance, strict=True)}
    return [by_score[one.score] for one in groups]


def first(share: float, count: int) -> int:
    """The last place that top-p keeps where nothing has a score: equal mass."""
    return int(np.searchsorted(np.arange(1, count + 1), share * count * (1 - 1e-12)))


def joint_halves(p: float, low: float, k: int, count: int) -> dict[str, float]:
    """The push of cross-fitting with one ranking of all halves, in which a half competes with its deciding half."""
    halves = kinds(SIZE // 2, p, low)
    total, kept = dict.fromkeys(ADVANTAGES, 0.0), 0.0
    for learns in halves:
        for decides in halves:
            better = sum(one.chance for one in halves if one.score > decides.score)
            equal = sum(one.chance for one in halves if one.score == decides.score)
            # the half that learns is one of the others, and known
            ahead, level = int(learns.score > decides.score), int(learns.score == decides.score)
            chance = among_first(k, count - 2, better, equal, ahead, level)
            weight = learns.chance * decides.chance * chance
            kept += weight
            for name in ADVANTAGES:
                total[name] += weight * learns.push[name]
    return {name: value / kept for name, value in total.items()}


def wider_baselines(p: float, low: float, k: int, count: int) -> dict[str, float]:
    """Cross-fitting with separate rankings, and two other means to centre by; over what they give without a filter.

    `kept`: the mean of what is kept of the group, both halves where both are. `others`: the mean of all other pulls of
    the group, kept or not.
    """
    halves = kinds(SIZE // 2, p, low)
    chances = top_k(halves, k, count)
    pushed, free, chance = {"kept": 0.0, "others": 0.0}, {"kept": 0.0, "others": 0.0}, 0.0
    for a, kept_b in zip(halves, chances, strict=True):  # a decides about b
        for b, kept_a in zip(halves, chances, strict=True):
            weight = a.chance * b.chance
            returns, gradient = np.array([*a.returns, *b.returns]), np.array([*a.arms, *b.arms]) - p
            half = slice(0, SIZE // 2)
            joined = float(((returns - returns.mean()) * gradient)[half].sum())
            others = float(((returns - (returns.sum() - returns) / (SIZE - 1)) * gradient)[half].sum())
            pushed["kept"] += weight * kept_a * (kept_b * joined + (1 - kept_b) * a.push["centred"])
            pushed["others"] += weight * kept_a * others
            free["kept"] += weight * a.push["centred"]
            free["others"] += weight * others
            chance += weight * kept_a
    return {name: pushed[name] / chance / free[name] for name in pushed}


def drawn(rule: Rule, p: float, low: float, count: int, draws: int, seed: int = 0) -> dict[str, tuple[float, float]]:
    """The push per kept pull of the package's own filter over seeded draws: mean and standard error (of a ratio)."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(count), SIZE)
    indices = np.tile(np.arange(SIZE), count)
    sums = {name: np.zeros(draws) for name in ADVANTAGES}
    sizes = np.zeros(draws)
    for draw in range(draws):
        arms = rng.random(count * SIZE) < p
        returns = np.where(arms, (rng.random(count * SIZE) < WIN).astype(float), low)
        kept = select(returns, labels, rule=rule, rollout_indices=indices).kept
        sizes[draw] = len(kept)
        parts = labels[kept] * 2 + (indices[kept] % 2 if rule.cross_fit else 0)
        for part in np.unique(parts):
            mine = kept[parts == part]
            for name, value in pushes(returns[mine], arms[mine].astype(float), p, low).items():
                sums[name][draw] += value
    found = {}
    for name, values in sums.items():
        mean = values.sum() / sizes.sum()
        residual = (values - mean * sizes) / sizes.mean()
        found[name] = (float(mean), float(residual.std(ddof=1) / np.sqrt(draws)))
    return found


def table(draws: int) -> list[dict]:
    """Every row: the setting, and for each kind of advantage the push over that without a filter, and its error."""
    rows = []
    for low in LOWS:
        for p in PULLS:
            whole, half = kinds(SIZE, p, low), kinds(SIZE // 2, p, low)
            even, alone = [1.0] * len(whole), [1.0] * len(half)
            free = {name: value / SIZE for name, value in expected(whole, even).items()}
            free_half = {name: value / (SIZE // 2) for name, value in expected(half, alone).items()}

            def add(name: str, groups: int, found: dict, base: dict, low=low, p=p) -> None:
                each = {key: value / base[key] for key, value in found.items()}
                rows.append({"low": low, "p": p, "filter": name, "groups": groups, "exact": True, **each})

            for count in (4, 16):
                k = keep_count(TOP_K, count)
                add("top_k", count, expected(whole, top_k(whole, k, count)), expected(whole, even))
                # whether a half is kept does not depend on it
                add("top_k, cross-fitted", count, expected(half, alone), expected(half, alone))
                joint = joint_halves(p, low, 2 * k, 2 * count)
                add("top_k, halves in one ranking", count, joint, expected(half, alone))
                wider = wider_baselines(p, low, k, count)
                for key, words in (("kept", "mean of the kept pulls"), ("others", "mean of the other 7")):
                    add(f"top_k, cross-fitted, {words}", count, {"centred": wider[key]}, {"centred": 1.0})
            add("top_p", 4, expected(whole, top_p(whole, TOP_P, 4)), expected(whole, even))
            for cross_fit in (False, True):
                rule = Rule("top_p", {"value": TOP_P}, cross_fit=cross_fit)
                found = drawn(rule, p, low, 16, draws)
                base = free_half if cross_fit else free
                each = {name: mean / base[name] for name, (mean, _) in found.items()}
                errors = {f"{name}_error": abs(error / base[name]) for name, (_, error) in found.items()}
                name = "top_p, cross-fitted" if cross_fit else "top_p"
                rows.append({"low": low, "p": p, "filter": name, "groups": 16, "exact": False, **each, **errors})
    return rows


def show(rows: list[dict]) -> str:
    """The rows as a table in Markdown."""
    lines = ["| `low` | p | filter | P | centred | value |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = []
        for name in ADVANTAGES:
            error = f" ± {row[f'{name}_error']:.3f}" if f"{name}_error" in row else ""
            cells.append(f"{row[name]:.3f}{error}" if name in row else "")
        lines.append(f"| {row['low']} | {row['p']} | {row['filter']} | {row['groups']} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000)
    rows = table(parser.parse_args().draws)
    RESULT.write_text(json.dumps(rows, indent=1) + "\n")
    print(show(rows))
