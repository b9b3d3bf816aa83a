"""Train the nano model, and check that held-out success rises and that engine and trainer agree."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from ragen_lab.qualify.findings import Outcome

from ragen_verl.names import GRADIENT_NORM, HELD_OUT_SUCCESS, MISMATCH, SECONDS, STEP_SECONDS, TRAIN_SUCCESS
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.launch import train
from ragen_verl.validation.composition import quoted

__all__ = ["failed", "run", "trained"]

_MARGIN = 2.0
"""Standard errors of the difference of two held-out evaluations (states drawn independently)."""
_BOUNDS = {"cpu": 1e-3, "cuda": 0.15}
"""Nats, the mean of the largest step: float32 on both sides, or bf16, which alone moves the nano model's
log-probabilities of random tokens by 0.04 (on a CPU): twice that for two sides, and as much again."""


def run(outcome: Outcome, settings: dict[str, Any]) -> None:
    """Fills the part's outcome.

    Args:
        outcome: of the part.
        settings: `device`, `recipe`, `steps`, `runs` (folder).
    """
    device, name, steps = settings["device"], settings["recipe"], settings["steps"]
    path = Path(settings["runs"]) / "learning"
    overrides = [
        f"hardware={'cpu' if device == 'cpu' else 'gpu'}",
        f"trainer.total_training_steps={steps}",
        f"trainer.test_freq={max(2, steps // 4)}",
        "trainer.save_freq=-1",
        # the trainer's own log-probabilities at every step, or there is nothing to compare
        "algorithm.rollout_correction.bypass_mode=false",
        f"ragen.run.dir={quoted(str(path))}",
    ]
    if code := trained(name, overrides, path):
        return failed(outcome, code, path)
    rows = RunFolder(path).rows()
    held_out = [(row["step"], row[HELD_OUT_SUCCESS]) for row in rows if HELD_OUT_SUCCESS in row]
    states = _states(path)
    outcome.curve = [(step, value) for step, value in held_out]
    for row in rows:
        if row["step"]:
            outcome.row(
                "steps", step=row["step"], train_success=row.get(TRAIN_SUCCESS), held_out=row.get(HELD_OUT_SUCCESS),
                gradient_norm=row.get(GRADIENT_NORM), mismatch_mean=row.get(f"{MISMATCH}/mean"),
                mismatch_max=row.get(f"{MISMATCH}/max"), seconds=row.get(STEP_SECONDS),
                generation=row.get(f"{SECONDS}/gen"),
            )  # fmt: skip
    first, best = held_out[0][1], max(value for _, value in held_out[1:])
    error = math.sqrt(max(first * (1 - first) + best * (1 - best), 1e-9) / states)
    margin = _MARGIN * error
    outcome.check(
        "learning", "held-out success rises by", best - first, margin, f"{_MARGIN:g} standard errors", least=True
    )
    mismatch = [row[f"{MISMATCH}/mean"] for row in rows if f"{MISMATCH}/mean" in row]
    outcome.check(
        "learning",
        "mean train/inference mismatch of the worst step",
        max(mismatch, default=math.nan),
        _BOUNDS[device],
        "nats",
    )
    share = [row[f"{MISMATCH}/share"] for row in rows if f"{MISMATCH}/share" in row]
    outcome.check(
        "learning", "tokens off by more than 0.5 nats, worst step", max(share, default=math.nan), 0.01, "share"
    )
    outcome.notes.append(
        f"{name}, {steps} steps, {states} held-out states. Success has to rise from before training to the best "
        f"evaluation by {_MARGIN:g} standard errors of their difference. Mismatch: |trainer - engine|, sampled "
        "tokens, nats."
    )
    outcome.judge(
        f"{name}: held-out success {first:.0%} before, {best:.0%} at best of {steps} steps; train/inference mismatch "
        f"{max(mismatch, default=math.nan):.1g} nats."
    )


def trained(recipe: str, overrides: list[str], path: Path) -> int:
    """Train a recipe in an emptied folder as `ragen-verl train` does; return the exit code."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)
    os.environ.pop("RANK", None)
    return train(recipe, overrides, RunFolder(path))


def failed(outcome: Outcome, code: int, path: Path) -> None:
    """FAIL with the run's own cause."""
    from ragen_lab.qualify.findings import Status

    from ragen_verl.runs.cause import cause

    folder = RunFolder(path)
    text = next((file.read_text(errors="replace") for file in (folder.error, folder.log_file) if file.exists()), "")
    outcome.status = Status.FAIL
    outcome.sentence = f"The training ended with code {code}: {cause(text)} ({folder.log_file})"


def _states(path: Path) -> int:
    """Held-out states of a run."""
    from omegaconf import OmegaConf

    config = OmegaConf.load(path / "config.yaml")
    return sum(env.groups for env in config.ragen.val.envs)
