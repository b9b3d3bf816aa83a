"""Rows that share prefixes against each row in whole: a pass for log-probabilities and an update by verl's own worker.

    python benchmarks/prefixes.py [--rounds 2] [--shapes nano small ...]

On one thread, in float32; seconds of the processor, the best of the rounds, and the most memory that a process held
above what it held before the first pass. Each measurement is a process of its own. A ratio is whole rows over shared
ones.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from passes import apart, passes, save, saved
from ragen_lab.qualify.workers import Rows, actor, recipe
from rich.console import Console
from rich.table import Table

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.cpu.small_model import fetch
from ragen_verl.patches.prefixes import ASKED

RESULT = Path(__file__).parent / "results" / "prefixes.json"


@dataclass(frozen=True)
class Shape:
    """Rows of an update.

    Attributes:
        what: what it stands for.
        groups, members: how many groups of how many rows.
        common: tokens that all groups begin with.
        prompt: tokens of a group's prompt, the common ones included.
        response: the fewest and the most tokens of a row after its prompt.
        micro: rows of a micro-batch.
        nano: whether the model is the nano model, and not SmolLM2-135M.
    """

    what: str
    groups: int
    members: int
    common: int
    prompt: int
    response: tuple[int, int]
    micro: int
    nano: bool = False

    def rows(self, vocabulary: int) -> Rows:
        """Random rows; group after group, as a step orders them."""
        random = torch.Generator().manual_seed(0)
        low, high = self.response
        lengths = torch.randint(low, high + 1, (self.groups * self.members,), generator=random).tolist()
        found = Rows.draw([(self.prompt, length) for length in lengths], vocabulary)
        for row, (prompt, _) in enumerate(found.cells):
            first = found.cells[row - row % self.members][0]
            prompt[:] = found.cells[0][0][: self.common] + first[self.common :]
        return found


SHAPES = {
    "nano": Shape("nano/frozen_lake: 8 groups of 8, up to 5 turns", 8, 8, 20, 40, (10, 60), 16, nano=True),
    "small": Shape("small/bandit: a group of 8, 163 + 12 tokens", 1, 8, 30, 163, (12, 12), 8),
    "one_prompt": Shape("one prompt of all groups: 64 rows, 163 + 12 tokens", 8, 8, 163, 163, (12, 12), 64),
    "paper": Shape("paper/sokoban_*: a group of 16, up to 5 turns", 1, 16, 250, 250, (200, 600), 4),
}


def measured(name: str, shared: bool, rounds: int) -> dict[str, float]:
    """Seconds and gigabytes of one shape, in this process."""
    shape = SHAPES[name]
    model = nano_model_path() if shape.nano else fetch()
    worker = actor(recipe("nano/frozen_lake", "cpu", str(model)))
    rows = shape.rows(600 if shape.nano else 49_000)
    told = {"micro_batch_size_per_gpu": shape.micro, "use_dynamic_bsz": False, ASKED: shared}
    return {"tokens": rows.tokens, **passes(worker, rows, rounds, **told)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--one", choices=("shared", "whole"), help="measure the first shape alone and print it as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.shapes[0], options.one == "shared", options.rounds)))
        return
    found = saved(RESULT)
    for name in options.shapes:
        one = {
            kind: apart(__file__, "--one", kind, "--shapes", name, "--rounds", str(options.rounds))
            for kind in ("whole", "shared")
        }
        ratios = {part: one["whole"][part] / one["shared"][part] for part in ("log_probs", "update", "gigabytes")}
        found[name] = {"what": SHAPES[name].what, **one, "ratios": ratios}
        save(RESULT, found)
    table = Table("shape", "tokens", "log-probs, s", "ratio", "update, s", "ratio", "GB", "ratio")
    for one in found.values():
        cells = [one["what"], f"{one['whole']['tokens']:,.0f}"]
        for part in ("log_probs", "update", "gigabytes"):
            cells += [f"{one['whole'][part]:.2f} -> {one['shared'][part]:.2f}", f"{one['ratios'][part]:.2f}"]
        table.add_row(*cells)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
