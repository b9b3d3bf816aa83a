"""What makes an update of small/bandit cheaper: verl's own worker with the recipe's settings, and with one changed.

    python benchmarks/small_update.py [--rounds 2] [--only fused_adamw lora ...]

SmolLM2-135M in float32, 8 groups of 8 rows of 163 tokens of prompt and 12 of answer, on one thread. Seconds of the
processor, the best of the rounds, and the most memory that a process held above what it held before the first pass.
Each is a process of its own. A ratio is the recipe's seconds over the changed ones.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from passes import apart, passes, save, saved
from prefixes import Shape
from ragen_lab.qualify.workers import BFLOAT16, actor, precision, recipe
from rich.console import Console
from rich.table import Table

from ragen_verl.cpu.small_model import fetch
from ragen_verl.patches.prefixes import ASKED

RESULT = Path(__file__).parent / "results" / "small_update.json"
SHAPE = Shape("small/bandit", groups=8, members=8, common=30, prompt=163, response=(12, 12), micro=8)
MODEL, OPTIMISER = "actor_rollout_ref.model", "actor_rollout_ref.actor.optim"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # name: (what it is, settings of the recipe, settings of a call)
    "recipe": ("the recipe: shared prefixes, a group a pass", {}, {}),
    "whole": ("each row in whole (ragen.share_prefixes=false)", {}, {ASKED: False}),
    "two_groups": ("two groups a pass", {}, {"micro_batch_size_per_gpu": 16}),
    "all_groups": ("all groups in one pass", {}, {"micro_batch_size_per_gpu": 64}),
    "fused_adamw": ("AdamW in one kernel", {f"{OPTIMISER}.override_optimizer_config": {"fused": True}}, {}),
    "gathered": (
        "parameters stay gathered between the passes",
        {"actor_rollout_ref.actor.fsdp_config.reshard_after_forward": False},
        {},
    ),
    "lora": (
        "LoRA of rank 16 on attention",
        {f"{MODEL}.lora_rank": 16, f"{MODEL}.lora_alpha": 32, f"{MODEL}.target_modules": ATTENTION},
        {},
    ),
    "bfloat16": ("passes in bfloat16", precision(BFLOAT16), {}),
}


def measured(name: str, rounds: int) -> dict[str, float]:
    """Seconds and gigabytes of one variant, in this process."""
    _, changes, call = VARIANTS[name]
    worker = actor(recipe("small/bandit", "cpu", str(fetch()), changes))
    told = {"micro_batch_size_per_gpu": SHAPE.micro, "use_dynamic_bsz": False, ASKED: True, **call}
    return passes(worker, SHAPE.rows(49_000), rounds, **told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--one", action="store_true", help="measure the first variant alone and print it as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.only[0], options.rounds)))
        return
    found = saved(RESULT)
    for name in options.only:
        one = apart(__file__, "--one", "--only", name, "--rounds", str(options.rounds))
        found[name] = {"what": VARIANTS[name][0], **one}
        save(RESULT, found)
    table = Table("variant", "log-probs, s", "ratio", "update, s", "ratio", "GB")
    for one in found.values():
        cells = [one["what"]]
        for part in ("log_probs", "update"):
            cells += [f"{one[part]:.1f}", f"{found['recipe'][part] / one[part]:.2f}"]
        table.add_row(*cells, f"{one['gigabytes']:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
