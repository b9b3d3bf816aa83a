"""Where the time of the nano model's update goes: linear layers, attention and the rest, in float32 and bfloat16.

    python benchmarks/update_profile.py [--rows 16] [--tokens 600] [--threads 1]

One forward and backward pass of a micro-batch with log-probabilities and entropy, in plain PyTorch: what no change of
verl's or this package's own work could make faster. Tokens per second are the best of five passes, shares are those of
the processor's time in one more, and the ratio compares the two types in this run.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, PreTrainedModel

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.runs.folder import versions

RESULT = Path(__file__).parent / "results" / "update_profile.json"
PARTS = {"attention": "scaled_dot_product", "linear layers": "mm"}
"""Part -> what the names of its operations contain."""
PASSES = 5


def update(model: PreTrainedModel, tokens: torch.Tensor) -> None:
    """A forward and a backward pass; `tokens` is int64 of shape (rows, tokens)."""
    log_probs = torch.log_softmax(model(input_ids=tokens, use_cache=False).logits.float(), -1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    (log_probs.gather(-1, tokens[..., None]).mean() + 0.001 * entropy.mean()).backward()


def seconds(model: PreTrainedModel, tokens: torch.Tensor) -> float:
    """The best of some passes, after one that warms up."""
    found = []
    for _ in range(1 + PASSES):
        start = time.perf_counter()
        update(model, tokens)
        found.append(time.perf_counter() - start)
    return min(found[1:])


def shares(model: PreTrainedModel, tokens: torch.Tensor) -> dict[str, float]:
    """Part -> share of the processor's time."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        update(model, tokens)
    times = {one.key: one.self_cpu_time_total for one in profiler.key_averages()}
    whole = sum(times.values())
    found = {part: sum(time for name, time in times.items() if word in name) / whole for part, word in PARTS.items()}
    return {**found, "everything else": 1 - sum(found.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokens = torch.randint(5, 500, (options.rows, options.tokens), generator=torch.Generator().manual_seed(0))
    found: dict[str, dict[str, float]] = {}
    for name in ("float32", "bfloat16"):
        model = AutoModelForCausalLM.from_pretrained(nano_model_path(), dtype=getattr(torch, name))
        found[name] = {"tokens per second": tokens.numel() / seconds(model, tokens), **shares(model, tokens)}
    table = Table("type", *found["float32"], title=f"{options.rows} rows of {options.tokens} tokens")
    for name, row in found.items():
        speed, *parts = row.values()
        table.add_row(name, f"{speed:,.0f}", *(f"{share:.0%}" for share in parts))
    Console().print(table)
    ratio = found["bfloat16"]["tokens per second"] / found["float32"]["tokens per second"]
    print(f"bfloat16 is {ratio:.2f} times as fast")
    result = {**vars(options), "found": found, "bfloat16_to_float32": ratio, "cores": os.cpu_count()}
    RESULT.write_text(json.dumps({**result, "versions": versions()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
