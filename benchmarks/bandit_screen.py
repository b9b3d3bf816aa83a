"""A screen of the two-armed bandit: 200 simulated learners a cell in seconds, without a model, an engine or verl.

A learner is one number, the logit of the risky arm. A step has 16 groups of 8 pulls, a filter keeps some, and Adam
follows the mean push of the kept pulls, returns centred by their group (or half of a group). It is a screen: it says
where a training run is worth its minutes. Cells that were trained (e5 and benchmarks/sweeps/risk.yaml) have their runs
beside it.

    python benchmarks/bandit_screen.py [--seeds 200]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
RESULT = RESULTS / "bandit_screen.json"
GROUPS, SIZE, STEPS, RATE, START = 16, 8, 300, 0.05, 0.2


def top_k(scores: np.ndarray) -> np.ndarray:
    """A quarter of the groups; scores have the groups on their last axis, as in all filters here."""
    return scores >= np.sort(scores, axis=-1)[..., [-(scores.shape[-1] // 4)]]


def _top_p(scores: np.ndarray, mass: np.ndarray) -> np.ndarray:
    order = np.argsort(-scores, axis=-1)
    ranked = np.take_along_axis(mass, order, axis=-1)
    before = np.cumsum(ranked, axis=-1) - ranked
    kept = before < 0.9 * ranked.sum(axis=-1, keepdims=True) * (1 - 1e-9)
    found = np.empty_like(kept)
    np.put_along_axis(found, order, kept, axis=-1)
    return found


def top_p(scores: np.ndarray) -> np.ndarray:
    """The groups that carry nine tenths of the scores."""
    return _top_p(scores, np.where(scores.max(axis=-1, keepdims=True) > 1e-6, scores, 1.0))


def top_p_softmax(scores: np.ndarray) -> np.ndarray:
    """The groups that carry nine tenths of exp(score)."""
    return _top_p(scores, np.exp(scores))


def min_p(scores: np.ndarray) -> np.ndarray:
    """The groups with at least a fifth of the highest score."""
    return scores >= 0.2 * scores.max(axis=-1, keepdims=True)


FILTERS = {"top-k 0.25": top_k, "top-p 0.9": top_p, "top-p 0.9, softmax": top_p_softmax, "min-p 0.2": min_p}


@dataclass(frozen=True)
class Cell:
    """A setting: `steady` against an arm that pays `win` with `chance`.

    Attributes:
        keep: the filter, or "none", or "random" for a quarter of the groups at random.
        score: "std" or "variance".
        draws: payouts of a group's risky pulls: each its "own", one "shared", or one for each of the two "halves".
        cross_fit: whether the score of one half decides about the other half.
        divide: whether the push of a group is divided by its standard deviation, as GRPO does.
    """

    name: str
    steady: float
    win: float = 1.0
    chance: float = 0.25
    keep: str = "none"
    score: str = "std"
    draws: str = "own"
    cross_fit: bool = False
    divide: bool = False

    def pushes(self, p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The mean push of a kept pull on the logit in one step of each learner, float64 of the shape of p."""
        shape = (*p.shape, GROUPS, SIZE)
        arms = rng.random(shape) < p[:, None, None]
        width = {"own": SIZE, "shared": 1, "halves": 2}[self.draws]
        paid = np.tile(rng.random((*shape[:2], width)) < self.chance, SIZE // width)
        return self.learned(arms - p[:, None, None], np.where(arms, self.win * paid, self.steady), rng)

    def learned(self, gradient: np.ndarray, returns: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The mean of the centred returns times `gradient`, over the kept rows of each learner's (group, size)."""
        parts = 2 if self.cross_fit else 1
        # (learner, part, group, size of the part); even and odd places are the two halves
        gradient, returns = (
            one.reshape(*one.shape[:2], SIZE // parts, parts).transpose(0, 3, 1, 2) for one in (gradient, returns)
        )
        std = np.round(returns.std(axis=-1, ddof=1), 9)
        scores = std**2 if self.score == "variance" else std
        scores = (scores if parts == 1 else scores[:, ::-1]) + 1e-9 * rng.random(std.shape)  # ties at random
        if self.keep == "random":
            kept = top_k(rng.random(std.shape))
        else:
            kept = np.ones_like(std, bool) if self.keep == "none" else FILTERS[self.keep](scores)
        push = ((returns - returns.mean(axis=-1, keepdims=True)) * gradient).mean(axis=-1)
        push = push / (std + 1e-6) if self.divide else push
        return (push * kept).sum(axis=(1, 2)) / kept.sum(axis=(1, 2))


def learners(
    start: np.ndarray, pushes: Callable[[np.ndarray], np.ndarray], rate: float = RATE, adam: bool = True
) -> np.ndarray:
    """The chances at the end of learners that begin with the chances `start`; `pushes` are those on their logits."""
    logits, first, second = np.log(start / (1 - start)), np.zeros_like(start), np.zeros_like(start)
    for step in range(1, STEPS + 1):
        push = pushes(1 / (1 + np.exp(-logits)))
        first, second = 0.9 * first + 0.1 * push, 0.999 * second + 0.001 * push**2
        scaled = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        logits += rate * (scaled if adam else push)
    return 1 / (1 + np.exp(-logits))


def ratio(cell: Cell, p: float, steps: int = 20_000) -> tuple[float, float]:
    """The push of a kept pull over the exact one of a pull without a filter at p, and its standard error."""
    size = SIZE // 2 if cell.cross_fit else SIZE
    free = p * (1 - p) * (cell.win * cell.chance - cell.steady) * (size - 1) / size
    found = cell.pushes(np.full(steps, p), np.random.default_rng(1)) / free
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(steps))


def two_steps(keep: str, cross_fit: bool, seeds: int, adam: bool) -> float:
    """A deterministic task: stop for 0.5, or go on to a second choice that pays 1 if it is right, at first with 0.05.

    Only the policy is random. Returns the share of learners that go on at the end, which is the better way.
    """
    rng, cell = np.random.default_rng(0), Cell("", 0.5, keep=keep, cross_fit=cross_fit)

    def pushes(p: np.ndarray) -> np.ndarray:
        go, right = (rng.random((seeds, GROUPS, SIZE)) < one[:, None, None] for one in p)
        state, found = rng.bit_generator.state, []
        for gradient in (go - p[0][:, None, None], go * (right - p[1][:, None, None])):
            rng.bit_generator.state = state  # the same groups are kept for both choices
            found.append(cell.learned(gradient, np.where(go, right, 0.5), rng))
        return np.array(found)

    start = np.repeat(np.array([[0.5], [0.05]]), seeds, axis=1)
    return float((learners(start, pushes, RATE if adam else 2.0, adam)[0] > 0.5).mean())


def cells() -> list[Cell]:
    """What the page shows."""
    found = [
        Cell("no filter", 0.35),
        Cell("StarPO-S", 0.35, keep="top-k 0.25"),
        Cell("StarPO-S, cross-fitted", 0.35, keep="top-k 0.25", cross_fit=True),
        Cell("no filter", 0.35, draws="shared"),
        Cell("StarPO-S", 0.35, keep="top-k 0.25", draws="shared"),
        Cell("StarPO-S, cross-fitted", 0.35, keep="top-k 0.25", draws="shared", cross_fit=True),
        Cell("StarPO-S, cross-fitted", 0.35, keep="top-k 0.25", draws="halves", cross_fit=True),
        Cell("no filter, divided by the deviation", 0.15, divide=True),
        Cell("no filter", 0.15),
        Cell("StarPO-S", 0.15, keep="top-k 0.25"),
        Cell("StarPO-S, cross-fitted", 0.15, keep="top-k 0.25", cross_fit=True),
        Cell("no filter", 0.42, 0.6, 0.75),
        Cell("StarPO-S", 0.42, 0.6, 0.75, keep="top-k 0.25"),
        Cell("StarPO-S, cross-fitted", 0.42, 0.6, 0.75, keep="top-k 0.25", cross_fit=True),
    ]
    for steady in (0.30, 0.35):
        found += [Cell(keep, steady, keep=keep, score=score) for keep in FILTERS for score in ("std", "variance")]
    return found


TRAINED = {
    ("no filter", 0.35, "own"): ("reproduction/e5_bandit_risk", "ppo_own_035"),
    ("StarPO-S", 0.35, "own"): ("reproduction/e5_bandit_risk", "starpo_s_own_035"),
    ("StarPO-S, cross-fitted", 0.35, "own"): ("reproduction/e5_bandit_risk", "cross_fit_own_035"),
    ("no filter", 0.35, "shared"): ("reproduction/e5_bandit_risk", "ppo_shared_035"),
    ("StarPO-S", 0.35, "shared"): ("reproduction/e5_bandit_risk", "starpo_s_shared_035"),
    ("no filter, divided by the deviation", 0.15, "own"): ("risk", "divided"),
    ("no filter", 0.15, "own"): ("risk", "centred"),
}
"""Name, steady arm and draws of a cell -> the committed result and its variant that trained the same."""


def trained(cell: Cell) -> list[float] | None:
    """The share of held-out risky pulls at the end of each committed run of a cell; None if it was not trained."""
    if (cell.name, cell.steady, cell.draws) not in TRAINED:
        return None
    file, variant = TRAINED[cell.name, cell.steady, cell.draws]
    runs = json.loads((RESULTS / f"{file}.json").read_text())["runs"]
    curves = [run.get("curves") or run["series"] for run in runs if run["variant"] == variant]
    return [curve["risky arm, held out"][-1][1] for curve in curves]


def measure(seeds: int) -> dict:
    """Every cell's push and learners, the trained runs beside them, and the two-step task."""
    rows = []
    for cell in cells():
        rng, (push, error) = np.random.default_rng(0), ratio(cell, START)
        risky = float((learners(np.full(seeds, START), partial(cell.pushes, rng=rng)) > 0.5).mean())
        rows.append(
            {**asdict(cell), "push": round(push, 3), "error": round(error, 3), "risky": risky, "trained": trained(cell)}
        )
    ways = {"no filter": ("none", False), "StarPO-S": ("top-k 0.25", False), "a random quarter": ("random", False),
            "StarPO-S, cross-fitted": ("top-k 0.25", True)}  # fmt: skip
    task = {name: [two_steps(*way, seeds, adam) for adam in (False, True)] for name, way in ways.items()}
    return {"seeds": seeds, "cells": rows, "two_steps": task}


def show(found: dict) -> str:
    """Three tables in Markdown: cells of one filter, four filters by two scores, the two-step task."""
    lines = ["| filter | steady arm; risky arm | payouts | push | screen: learn the worse arm | runs with verl |"]
    lines.append("|---|---|---|---|---|---|")
    grid: dict[tuple, list[str]] = {}
    for row in found["cells"]:
        better = row["win"] * row["chance"] > row["steady"]  # the risky arm
        push, share = f"{row['push']:.2f} ± {row['error']:.2f}", 1 - row["risky"] if better else row["risky"]
        if row["name"] in FILTERS:
            grid.setdefault((row["name"], row["score"]), []).append(f"{push}, {share:.0%}")
            continue
        ends = row["trained"] or []
        runs = f"{sum((end > 0.5) != better for end in ends)} of {len(ends)}" if ends else "-"
        arms = f"{row['steady']:g}; {row['win']:g} in {row['chance']:.0%} of the pulls"
        lines.append(f"| {row['name']} | {arms} | {row['draws']} | {push} | {share:.0%} | {runs} |")
    lines += [
        "",
        "| filter | score | steady arm 0.3: push, learn the worse arm | steady arm 0.35 |",
        "|---|---|---|---|",
    ]
    lines += [f"| {name} | {score} | {' | '.join(parts)} |" for (name, score), parts in grid.items()]
    lines += ["", "| two-step task | go on, plain gradient | go on, Adam |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {a:.0%} | {b:.0%} |" for name, (a, b) in found["two_steps"].items())])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    found = measure(parser.parse_args().seeds)
    rows = ",\n  ".join(json.dumps(row) for row in found.pop("cells"))
    RESULT.write_text(f'{json.dumps(found)[:-1]}, "cells": [\n  {rows}\n]}}\n')
    print(show(json.loads(RESULT.read_text())))
