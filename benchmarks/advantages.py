"""How much faster the estimators are than the loops of the tests, at 1,024 trajectories x 4,096 tokens x 20 turns.

    python benchmarks/advantages.py

The loops are those of tests/advantages/reference_advantages.py over the elements of the tensors, in their simplest
form; a second column has them over Python lists instead, the fastest form of the same loop. They run on a few
trajectories and are scaled to all. Both sides are given as processor seconds on one thread, so that other load on the
machine does not count; for the estimators the best of a few runs is taken.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from ragen_verl.advantages import ESTIMATORS
from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.advantages.estimate import estimate
from ragen_verl.runs.folder import versions

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import reference_advantages as slow

RESULT = Path(__file__).parent / "results" / "advantages.json"
TRAJECTORIES, TOKENS, TURNS, GROUP = 1024, 4096, 20, 16
SUBSET = {"tensors": 2, "lists": 16}
RUNS = 3


def made(trajectories: int) -> AdvantageBatch:
    """Random turns of about half the tokens, a reward at the end of each, states that recur."""
    rng = np.random.default_rng(0)
    rewards, mask = np.zeros((trajectories, TOKENS), np.float32), np.zeros((trajectories, TOKENS), np.int64)
    for row in range(trajectories):
        cuts = np.sort(rng.choice(np.arange(1, TOKENS // 2), 2 * TURNS - 1, replace=False)) * 2
        edges = [0, *cuts.tolist()]
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            mask[row, start:stop] = 1
            rewards[row, stop - 1] = rng.normal()
    return AdvantageBatch(
        rewards=torch.tensor(rewards),
        mask=torch.tensor(mask),
        groups=torch.arange(trajectories) // GROUP,
        trajectories=torch.arange(trajectories),
        order=torch.zeros(trajectories, dtype=torch.int64),
        values=torch.tensor(rng.normal(size=mask.shape), dtype=torch.float32),
        states=rng.integers(0, 30, (trajectories, TURNS)).astype(str).tolist(),
    )


def seconds(work: Callable) -> float:
    start = process_time()
    work()
    return process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    whole = made(TRAJECTORIES)
    subsets = {kind: made(count) for kind, count in SUBSET.items()}
    table = Table(title=f"{TRAJECTORIES} x {TOKENS} tokens x {TURNS} turns, processor time of one thread")
    for column in ("estimator", "ms", "loop over tensors, s", "ratio", "loop over lists, s", "ratio"):
        table.add_column(column, justify="left" if column == "estimator" else "right")
    rows = {}
    for name, estimator in ESTIMATORS.items():
        options = {key: 0.95 for key in ("gamma", "lam") if key in estimator.options}  # 1 is a case of its own
        ours = min(seconds(lambda: estimate(name, replace(whole), options)) for _ in range(RUNS))  # noqa: B023
        row = {"seconds": ours}
        for kind, batch in subsets.items():
            slow.READ = torch.Tensor.tolist if kind == "lists" else slow.elements
            loop = seconds(lambda: getattr(slow, name)(batch, **options))  # noqa: B023
            row[f"loop_over_{kind}_seconds"] = loop * TRAJECTORIES / SUBSET[kind]
            row[f"ratio_to_{kind}"] = row[f"loop_over_{kind}_seconds"] / ours
        rows[name] = row
        loops = [
            f"{row[f'{key}_{kind}{end}']:.1f}"
            for kind in SUBSET
            for key, end in (("loop_over", "_seconds"), ("ratio_to", ""))
        ]
        table.add_row(name, f"{1000 * ours:.1f}", *loops)
    console = Console(width=110)
    console.print(table)
    console.print(f"Loops timed on {SUBSET} trajectories and scaled to {TRAJECTORIES}.")
    result = {
        "trajectories": TRAJECTORIES, "tokens": TOKENS, "turns": TURNS, "loops_timed_on": SUBSET,
        "time": "processor seconds of one thread", "estimators": rows, "versions": versions(),
    }  # fmt: skip
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
