"""The bound of a run's step: what its tokens cost in plain PyTorch, beside what the step took.

    python benchmarks/step_bound.py runs/nano-frozen_lake [--steps 10]

Every pass that a step cannot do without is measured in float32 on one thread, in seconds of the processor, and divided
by the cores, as if they shared it without loss: forward and backward over the tokens that an update computes, with
logits before sampled tokens; a forward pass over the prompts; and a decode pass for every token of the longest episode,
of the episodes that are that long. Environments, servers, weights and metrics cost nothing here.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from statistics import mean

import torch
from omegaconf import OmegaConf
from passes import least
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from ragen_verl.names import SECONDS, STEP_SECONDS
from ragen_verl.runs.folder import RunFolder, versions
from ragen_verl.runs.trajectories import read_file

RESULT = Path(__file__).parent / "results" / "step_bound.json"
ROUNDS = 3


def decode(model: PreTrainedModel, rows: int, context: int) -> float:
    """Seconds of one pass that samples a token for each of these rows."""
    cache, last = DynamicCache(), torch.randint(5, 500, (rows, 1))
    model(last.expand(rows, context), past_key_values=cache)
    return least(lambda: model(last, past_key_values=cache).logits[:, -1].softmax(-1).multinomial(1), ROUNDS)


def bound(config: dict, computed: int, sampled: int, rows: int, longest: int) -> dict[str, float]:
    """Seconds of one thread for a step of these tokens.

    Args:
        config: the run's.
        computed: tokens that an update computes.
        sampled: those of them before a sampled token.
        rows: episodes of a step.
        longest: sampled tokens of the longest episode.
    """
    torch.set_num_threads(1)
    settings = config["actor_rollout_ref"]
    model = AutoModelForCausalLM.from_pretrained(settings["model"]["path"], dtype=torch.float32)
    micro = settings["actor"]["ppo_micro_batch_size_per_gpu"]
    tokens = torch.randint(5, 500, (micro, round(computed / rows)))

    def update() -> None:
        logits = model(tokens, use_cache=False, logits_to_keep=max(1, round(sampled / rows))).logits
        (torch.log_softmax(logits.float(), -1).square().mean()).backward()

    found = {"update": least(update, ROUNDS) * rows / micro}
    with torch.no_grad():
        found["prompts"] = least(lambda: model(tokens, use_cache=False, logits_to_keep=1), ROUNDS) * rows / micro
        alone, together = (decode(model, count, tokens.shape[1]) for count in (1, rows))
        found["decode"] = longest * alone + (sampled - longest) * (together - alone) / (rows - 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, default=10, help="the last steps of the run that are looked at")
    options = parser.parse_args()
    folder = RunFolder(options.run)
    config = OmegaConf.to_container(OmegaConf.load(folder.path / "config.yaml"), resolve=True)
    steps = [row for row in folder.rows() if STEP_SECONDS in row][-options.steps :]
    played = list(read_file(folder.path / "trajectories" / "train" / f"{steps[-1]['step']:06d}.jsonl"))
    answers = [sum(turn["response_tokens"] for turn in one["turns"]) for one in played]
    whole = mean(row["perf/total_num_tokens"] for row in steps)
    computed = whole * mean(row.get("actor/computed_tokens", 1.0) for row in steps)
    least = bound(config, round(computed), sum(answers), len(played), max(answers))
    took = {part: mean(row.get(f"{SECONDS}/{part}", 0.0) for row in steps) for part in ("gen", "update_actor")}
    step, cores = mean(row[STEP_SECONDS] for row in steps), os.cpu_count() or 1
    found = {
        "generation": {"took": took["gen"], "bound": (least["prompts"] + least["decode"]) / cores},
        "update": {"took": took["update_actor"], "bound": least["update"] / cores},
        "the rest": {"took": step - sum(took.values()), "bound": 0.0},
        "step": {"took": step, "bound": sum(least.values()) / cores},
    }
    sizes = {
        "tokens": whole,
        "computed": computed,
        "sampled": sum(answers),
        "longest": max(answers),
        "rows": len(played),
    }
    table = Table(
        "part", "took, s", "bound, s", title=f"{', '.join(f'{value:,.0f} {name}' for name, value in sizes.items())}"
    )
    for name, one in found.items():
        table.add_row(name, f"{one['took']:.2f}", f"{one['bound']:.2f}")
    Console().print(table)
    saved = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    saved[config["trainer"]["experiment_name"]] = {
        "sizes": sizes, "one_thread": least, "parts": found, "cores": cores, "versions": versions(),
    }  # fmt: skip
    RESULT.write_text(json.dumps(saved, indent=2) + "\n")


if __name__ == "__main__":
    main()
