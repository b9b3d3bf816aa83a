"""Seconds of a step at the paper's size, by phase: a real training of a paper recipe with random weights."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

from omegaconf import OmegaConf
from ragen_lab.qualify.learning import failed, trained
from ragen_lab.qualify.outcome import Outcome
from ragen_lab.qualify.shapes import make

from ragen_verl.names import SECONDS, STEP_SECONDS
from ragen_verl.runs.folder import RunFolder

__all__ = ["run"]

_RECIPE = "paper/sokoban_starpo_ppo"
_STEPS = 4
_PHASES = ("gen", "old_log_prob", "ref", "values", "adv", "update_critic", "update_actor", "update_weights")
_RESPONSE = 100
"""Tokens of a turn, as in the paper's prompt. A random model ends a turn by itself only once in 641 tokens."""


def run(outcome: Outcome, settings: dict[str, Any]) -> None:
    """Fills the part's outcome.

    Args:
        outcome: of the part.
        settings: `device`, `models` (folder), `shapes`, `runs` (folder).
    """
    device, shape = settings["device"], settings["shapes"][0]
    model, path = make(shape, Path(settings["models"])), Path(settings["runs"]) / "steps"
    overrides = [
        f"actor_rollout_ref.model.path={model}",
        f"hardware={'cpu' if device == 'cpu' else 'gpu'}",
        f"ragen.rollout.response_length={_RESPONSE if device != 'cpu' else 8}",
        f"trainer.total_training_steps={_STEPS}",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        f"ragen.run.dir={path}",
    ]
    if device == "cpu":
        overrides += [
            "ragen.train.envs.0.groups=2",
            "actor_rollout_ref.rollout.n=4",
            "actor_rollout_ref.actor.ppo_mini_batch_size=1",
            "critic.ppo_mini_batch_size=1",
            "ragen.rollout.max_turns=2",
        ]
    if code := trained(_RECIPE, overrides, path):
        return failed(outcome, code, path)
    rows = [row for row in RunFolder(path).rows() if row["step"]]
    for row in rows:
        phases = {name: row.get(f"{SECONDS}/{name}") for name in _PHASES}
        outcome.row("steps", step=row["step"], step_s=row[STEP_SECONDS], **phases)
    warm = rows[1:] or rows
    seconds, tokens = (mean(row[key] for row in warm) for key in (STEP_SECONDS, "perf/total_num_tokens"))
    gpus = OmegaConf.load(path / "config.yaml").trainer.n_gpus_per_node  # one on the CPU, a logical one
    for name in _PHASES:
        took = [row[f"{SECONDS}/{name}"] for row in warm if f"{SECONDS}/{name}" in row]
        if took:
            outcome.row("phases", phase=name, seconds=mean(took), share=mean(took) / seconds)
    response = mean(row.get("response_length/mean", float("nan")) for row in warm)
    size = "2 groups of 4, 2 turns of 8 tokens" if device == "cpu" else f"8 groups of 16, 5 turns of {_RESPONSE} tokens"
    outcome.notes.append(
        f"{_RECIPE} with random weights in the shape {shape}, {size}, {_STEPS} steps of which the first is left out; a "
        f"step has {tokens:,.0f} tokens in all and responses of {response:.0f} on average. The nano tokenizer makes "
        "more tokens of a prompt than Qwen's."
        + (" On the CPU these sizes only show that the part works." if device == "cpu" else "")
    )
    per = "machine" if device == "cpu" else "GPU"
    outcome.judge(f"{shape}, {size}: {seconds:.1f} s a step, {tokens / seconds / gpus:,.0f} tokens/s per {per}.")
