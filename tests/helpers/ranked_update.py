"""One rank of the actor: log-probabilities of its rows, two updates on them, log-probabilities again; as JSON.

    RANK=0 WORLD_SIZE=2 ... python ranked_update.py out.json

verl's own worker and engine (FSDP2 over gloo) on rows that a step's plan dealt to the rank.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from recipe_composition import composed
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker

from ragen_verl.training.batch import TrajectoryBatch
from ragen_verl.training.probes import cross_rows, lay_out
from ragen_verl.training.step_plan import ModelPass, StepPlan

SIZES = ((3, 4), (5, 9), (2, 6), (7, 3), (4, 4), (6, 8), (2, 2))  # of prompt and response: an odd number of rows
UPDATES = 2


def main() -> None:
    """Writes `before` and `after`, row -> log-probabilities of its response, and `grad_norm` of each update."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    plan = StepPlan.of(played(), ranks, {"actor": ModelPass(UPDATES, 2)})
    keys = [*plan.trajectories.row_keys, *(f"pad_{i}_0" for i in range(plan.padded - plan.rows))]
    order = plan.order(keys, [sum(size) for size in SIZES] + [2] * (plan.padded - plan.rows), (0, 1))
    mine = order[rank * plan.per_rank : (rank + 1) * plan.per_rank]
    optim = "actor_rollout_ref.actor.optim."
    overrides = ["algorithm=nano_grpo", f"{optim}lr=1e-4", f"{optim}lr_warmup_steps=0"]  # warm-up starts at 0
    config = composed("nano/frozen_lake", *overrides).actor_rollout_ref
    worker = ActorRolloutRefWorker(config, role="actor")
    worker.init_model()
    assert worker.actor.engine.get_data_parallel_size() == ranks

    before = log_probs(worker, mine, plan)
    settings = {
        "global_batch_size": plan.rows_per_update("actor"),
        "mini_batch_size": plan.padded // UPDATES,
        "micro_batch_size_per_gpu": plan.passes["actor"].micro_batch(plan.per_rank),
        "dataloader_kwargs": {"shuffle": False},
        "calculate_entropy": False,
        "temperature": 1.0,
    }
    rows = fields(mine)
    rows["old_log_probs"] = nested([torch.tensor(before[row]) - 0.1 * noise(row, 1) for row in mine])
    rows["advantages"] = nested([noise(row, 2) for row in mine])
    tu.assign_non_tensor(rows, **settings)
    output = worker.update_actor(rows)
    norms = None if output is None else tu.get(output, "metrics")["grad_norm"]
    found = {"before": before, "after": log_probs(worker, mine, plan), "grad_norm": norms}
    Path(sys.argv[1]).write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


def played() -> TrajectoryBatch:
    """A group of one row for each size, of two environments."""
    count = len(SIZES)
    return TrajectoryBatch(
        records=tuple({"env": "ab"[row % 2]} for row in range(count)),
        groups=tuple(f"u{row}" for row in range(count)),
        keys=tuple((f"u{row}_0_0",) for row in range(count)),
    )


def noise(row: int, kind: int) -> torch.Tensor:
    """Normal numbers for each token of a row's response."""
    size = SIZES[row][1] if row < len(SIZES) else 1
    return torch.randn(size, generator=torch.Generator().manual_seed(10 * row + kind))


def fields(rows: list[int]):
    """Rows as verl's engines take them; those beyond the sizes are padding, of which nothing counts."""
    cells = []
    for prompt, response in SIZES:
        ids = torch.randint(4, 300, (prompt + response,), generator=torch.Generator().manual_seed(prompt + response))
        cells.append((ids[:prompt].tolist(), ids[prompt:].tolist()))
    places = lay_out([1], 1, None)
    return cross_rows(cells, type(places)(tuple(row if row < len(SIZES) else -1 for row in rows), 1))


def nested(rows: list[torch.Tensor]) -> torch.Tensor:
    """verl's ragged column."""
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def log_probs(worker: ActorRolloutRefWorker, mine: list[int], plan: StepPlan) -> dict[int, list[float]]:
    """Row -> log-probabilities of its response."""
    rows = fields(mine)
    micro = plan.passes["actor"].micro_batch(plan.per_rank)
    settings = {"calculate_entropy": False, "compute_loss": False, "temperature": 1.0}
    tu.assign_non_tensor(rows, micro_batch_size_per_gpu=micro, **settings)
    output = worker.compute_log_prob(rows)["log_probs"].unbind()
    sizes = [SIZES[row][1] if row < len(SIZES) else 1 for row in mine]
    return {row: one[-size - 1 : -1].tolist() for row, one, size in zip(mine, output, sizes, strict=True)}


if __name__ == "__main__":
    main()
