"""Where a training step's time goes: generation, model passes, and everything else, at 8 groups of 16.

    python benchmarks/step_share.py

Runs eight steps of nano/frozen_lake without validation, leaves out the first two (first calls warm up) and prints the
share of each part. "Everything else" is what this package and verl's bookkeeping add: filter, advantages, metrics,
transfers, the run's folder; it should stay at 10 % or less.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from ragen_verl.names import SECONDS, STEP_SECONDS
from ragen_verl.runs.folder import RunFolder, versions
from ragen_verl.runs.launch import train

RESULT = Path(__file__).parent / "results" / "step_share.json"
STEPS, WARM = 8, 2
MODEL = ("gen", "old_log_prob", "ref", "values", "update_critic", "update_actor", "update_weights")


def main() -> None:
    with TemporaryDirectory() as folder:
        overrides = [
            "ragen.train.envs.0.groups=8",
            "actor_rollout_ref.rollout.n=16",
            "actor_rollout_ref.actor.ppo_mini_batch_size=4",
            f"trainer.total_training_steps={STEPS}",
            "trainer.val_before_train=false",
            "trainer.test_freq=-1",
            "trainer.save_freq=-1",
            f"ragen.run.dir={folder}",
        ]
        if code := train("nano/frozen_lake", overrides, RunFolder(folder)):
            raise SystemExit(code)
        rows = [row for row in RunFolder(folder).rows() if row["step"] > WARM]
    step = mean(row[STEP_SECONDS] for row in rows)
    parts = {name: mean(row.get(f"{SECONDS}/{name}", 0.0) for row in rows) / step for name in MODEL}
    parts = {name: share for name, share in parts.items() if share}
    parts["everything else"] = 1 - sum(parts.values())
    table = Table(title=f"{len(rows)} steps of 8 x 16, {step:.2f} s each")
    table.add_column("part")
    table.add_column("share", justify="right")
    for name, share in parts.items():
        table.add_row(name, f"{share:.1%}")
    Console().print(table)
    result = {"step_seconds": round(step, 3), "shares": parts, "steps": len(rows), "versions": versions()}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
