"""Log-probabilities and entropy in chunks against verl's own: the functions alone, and in an update of the nano model.

    python benchmarks/logits.py [--rows 96] [--tokens 125] [--rounds 5]

On one thread; seconds of the processor, the best of some rounds in turns. A ratio is verl's time over that in chunks.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
import verl.utils.torch_functional as verl_functional
from ragen_lab.qualify.workers import Rows, actor, recipe
from rich.console import Console
from rich.table import Table

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.runs.folder import versions

RESULT = Path(__file__).parent / "results" / "logits.json"
OURS = {
    name: getattr(verl_functional, name) for name in ("logprobs_from_logits_v2", "entropy_from_logits_with_chunking")
}
WORDS = 641
"""Vocabulary of the nano model."""


def use(ours: bool) -> None:
    """Let verl use its own functions or those in chunks."""
    for name, own in OURS.items():
        setattr(verl_functional, name, own if ours else own.__wrapped__)


def alone(name: str, rows: int, gradient: bool) -> None:
    """Call a function on float32 logits of shape (rows, WORDS), perhaps with its backward pass."""
    logits = torch.randn(rows, WORDS, generator=torch.Generator().manual_seed(0)).requires_grad_(gradient)
    labels = torch.arange(rows) % WORDS
    found = getattr(verl_functional, name)(logits, *([labels] if "logprobs" in name else []))
    if gradient:
        found.sum().backward()


def best(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """Name of a call -> seconds of the processor with verl's functions and with ours, and their ratio."""
    times: dict[str, dict[bool, list[float]]] = {name: {False: [], True: []} for name in calls}
    for _ in range(1 + rounds):
        for ours in (False, True):
            use(ours)
            for name, call in calls.items():
                start = time.process_time()
                call()
                times[name][ours].append(time.process_time() - start)
    found = {name: (min(one[False][1:]), min(one[True][1:])) for name, one in times.items()}
    return {name: {"verl": theirs, "chunks": ours, "ratio": theirs / ours} for name, (theirs, ours) in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--tokens", type=int, default=125)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = Rows.draw([(options.tokens - options.tokens // 3, options.tokens // 3)] * options.rows, WORDS)
    worker = actor(recipe("nano/frozen_lake", "cpu", str(nano_model_path())))
    old = [torch.zeros_like(one) for one in rows.advantages]
    sizes = {"micro_batch_size_per_gpu": 32, "use_dynamic_bsz": False, "use_remove_padding": False}
    found = best(
        {
            "log-probs alone": lambda: alone("logprobs_from_logits_v2", rows.tokens, False),
            "log-probs alone, and backward": lambda: alone("logprobs_from_logits_v2", rows.tokens, True),
            "entropy alone, and backward": lambda: alone("entropy_from_logits_with_chunking", rows.tokens, True),
            "log-probs of the nano model": lambda: rows.log_probs(worker, entropy=True, **sizes),
            "update of the nano model": lambda: rows.update(worker, old, entropy=True, **sizes),
        },
        options.rounds,
    )
    table = Table("", "verl, s", "in chunks, s", "ratio", title=f"{rows.tokens} tokens, {WORDS} words, float32")
    for name, one in found.items():
        table.add_row(name, *(f"{one[key]:.3f}" for key in ("verl", "chunks")), f"{one['ratio']:.2f}")
    Console().print(table)
    result = {**vars(options), "found": found, "cores": os.cpu_count(), "versions": versions()}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
