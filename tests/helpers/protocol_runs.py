"""Run folders as trainings leave them, of a small sweep with a protocol, without any training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from ragen_lab.reproduce.sweep import Sweep

from ragen_verl.rollout.metrics import summarize
from ragen_verl.rollout.trajectory import StopReason, Trajectory
from ragen_verl.runs.folder import RunFolder

SEEDS = (10_000, 1_010_000, 2_010_000, 3_010_000, 4_010_000)
SWEEP = f"""
name: small
recipe: nano/bandit
overrides: [trainer.total_training_steps=30]
seeds: {list(SEEDS)}
variants: {{a: [algorithm=starpo_s], b: [], c: []}}
panels: {{success: val-env/success, entropy: actor/entropy}}
source: a table
published: {{a: {{success: 0.7}}}}
protocol:
  question: Is a better than b?
  claim: it is.
  source: a table
  scale: nano
  rule: by the interval
  noise: {{success: 0.05}}
  noise_from: made up
  statistic: {{metric: val-env/success}}
  comparisons:
    - {{name: a against b, first: [a], second: [b]}}
    - {{name: c against b, first: [c], second: [b], decides: false}}
    - {{name: a collapses, first: [a], than: 0.5, decides: false, statistic: {{kind: collapse}}}}
  curves: [{{variant: a, panel: success, values: [0.2, 0.4, 0.7, 0.6]}}]
  cost: {{minutes: 1, how: made up}}
"""


def read(tmp_path: Path, text: str = SWEEP) -> Sweep:
    file = tmp_path / "small.yaml"
    file.write_text(text)
    return Sweep.read(file)


def settings(variant: str, seed: int, **other: Any) -> dict[str, Any]:
    return {"ragen": {"train": {"seed": seed}, "variant": variant, **other}, "lr": 1e-3}


def compose(recipe: str, overrides: list[str]) -> dict[str, Any]:
    """In the place of Hydra: the settings that the folder's name and the seed say."""
    given = dict(one.split("=", 1) for one in overrides if "=" in one)
    return settings(Path(given.get("ragen.run.dir", "none/none")).parent.name, int(given.get("ragen.train.seed", 0)))


def finish(folder: RunFolder, variant: str, seed: int, rate: float, states: int = 24, **other: Any) -> None:
    """A run of 30 steps, evaluated at 0, 10, 20 and 30 on the same states, twice each."""
    rng = np.random.default_rng((seed, len(variant), ord(variant[0])))
    folder.path.mkdir(parents=True)
    hydra = folder.path / "hydra"
    hydra.mkdir()
    OmegaConf.save(OmegaConf.create(settings(variant, seed, **other)), hydra / "config.yaml")
    job = {"hydra": {"job": {"config_name": "nano/bandit"}, "runtime": {"config_sources": []}}}
    OmegaConf.save(OmegaConf.create(job), hydra / "hydra.yaml")
    OmegaConf.save(OmegaConf.create([]), hydra / "overrides.yaml")
    for step in range(0, 31):
        metrics: dict[str, Any] = {"actor/entropy": 1.0, "train/success": rate, "timing_s/step": 2.0}
        if step % 10 == 0:
            records = [record(state, k, rng.random() < rate) for state in range(states) for k in range(2)]
            folder.write_trajectories("val", step, records)
            metrics |= summarize(records, "val-env")
        folder.log(step, metrics)
    folder.finish(recipe="nano/bandit", seed=seed)


def record(state: int, rollout_index: int, success: bool) -> dict[str, Any]:
    reason = StopReason.SOLVED if success else StopReason.TERMINATED
    whole = Trajectory("Bandit-v0", 123 + state, rollout_index, stop_reason=reason, env_name="Bandit").record()
    return {**whole, "metrics": whole["metrics"] | {"return": float(success), "valid_turn_ratio": 1.0}}


def all_finished(sweep: Sweep, root: Path, rates: dict[str, float]) -> None:
    for variant, seed, folder in sweep.runs(root, list(rates)):
        finish(folder, variant, seed, rates[variant])
