"""Seconds of a step at the papers' sizes, by phase: real training runs of two paper recipes with random weights.

The estimate of `qualify --estimate` for this card is shown next to each phase, and RAGEN's own time next to the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from omegaconf import OmegaConf
from ragen_lab.qualify.cards import CARDS, Card
from ragen_lab.qualify.estimates_page import estimated
from ragen_lab.qualify.findings import Outcome
from ragen_lab.qualify.learning import failed, trained
from ragen_lab.qualify.shapes import make

from ragen_verl.names import SECONDS, STEP_SECONDS
from ragen_verl.runs.folder import RunFolder
from ragen_verl.validation.composition import quoted

__all__ = ["card_of_gpu", "estimates", "run"]

_RAGEN = {"paper/sokoban_starpo_s": 25.0, "paper/sokoban_starpo_ppo": 68.0}
"""Recipe -> seconds of a step of RAGEN's own code: trained on a quarter of the groups, and on all."""
_STEPS = 4
_PHASES = {
    "gen": ("prefill", "decode", "turns, environments"),
    "old_log_prob": ("old log-probs",),
    "ref": ("reference",),
    "values": ("values",),
    "adv": ("filter, advantages, metrics",),
    "update_critic": ("critic update",),
    "update_actor": ("actor update",),
    "update_weights": ("sleep, push, wake",),
}
"""verl's phase -> the parts of the estimate that it holds."""
_RESPONSE = 100
"""Tokens of a turn, as in the paper's prompt. A random model hardly ever ends a turn by itself."""


def run(outcome: Outcome, settings: dict[str, Any]) -> None:
    """Fills the part's outcome.

    Args:
        outcome: of the part.
        settings: `device`, `models` (folder), `shapes`, `runs` (folder), `gpus` (name and memory of each), `save`.
    """
    device, shape = settings["device"], settings["shapes"][0]
    model, card = make(shape, Path(settings["models"])), card_of_gpu(settings["gpus"])
    said = []
    for recipe in _RAGEN:
        path = Path(settings["runs"]) / f"steps-{recipe.rpartition('/')[2]}"
        overrides = _overrides(device, model)
        if code := trained(recipe, [*overrides, f"ragen.run.dir={quoted(str(path))}"], path):
            return failed(outcome, code, path)
        said.append(_measured(outcome, recipe, path, estimates(recipe, overrides, card)))
        settings["save"]()
    size = "4 groups of 4, 2 turns of 8 tokens" if device == "cpu" else f"8 groups of 16, 5 turns of {_RESPONSE} tokens"
    outcome.notes.append(
        f"Random weights in the shape {shape}, {size}, {_STEPS} steps of which the first is left out. Tokens a second: "
        "tokens of the rows that are trained on, over the seconds of a phase (generation: part vllm). "
        f"RAGEN: {' and '.join(f'{seconds:g}' for seconds in _RAGEN.values())} s a step on its own hardware."
        + (" On the CPU these sizes only show that the part works." if device == "cpu" else "")
        + ("" if card else " This card is not among those of --estimate.")
    )
    outcome.judge(f"{shape}, {size}: {'; '.join(said)}.")


def card_of_gpu(gpus: Sequence[dict[str, Any]]) -> Card | None:
    """The data sheet of the first GPU, by its name and memory as `nvidia-smi` lists them; None if there is none."""
    for name, card in CARDS.items():
        for gpu in gpus[:1]:
            known = name.split("-")[0] in gpu["name"].lower().replace(" ", "")
            if known and abs(card.gb - gpu["memory_gb"]) < 0.05 * card.gb:
                return card
    return None


def estimates(recipe: str, overrides: Sequence[str], card: Card | None) -> dict[str, float]:
    """verl's phase -> estimated seconds on a card; nothing without a card."""
    if card is None:
        return {}
    parts = {part.name: part.estimate for part in estimated(recipe, overrides, card).parts}
    found = {phase: [parts.pop(name) for name in names if name in parts] for phase, names in _PHASES.items()}
    if parts:
        raise KeyError(f"The estimate has parts that no phase of verl is compared with: {', '.join(parts)}.")
    return {phase: sum(seconds) for phase, seconds in found.items() if seconds}


def _overrides(device: str, model: Path) -> list[str]:
    """The settings of a short run without evaluation and checkpoints on this device."""
    found = [
        f"actor_rollout_ref.model.path={model}",
        f"hardware={'cpu' if device == 'cpu' else 'gpu'}",
        f"ragen.rollout.response_length={_RESPONSE if device != 'cpu' else 8}",
        f"trainer.total_training_steps={_STEPS}",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
    ]
    if device == "cpu":
        found += [
            "ragen.train.envs.0.groups=4",
            "actor_rollout_ref.rollout.n=4",
            "actor_rollout_ref.actor.ppo_mini_batch_size=1",
            "critic.ppo_mini_batch_size=1",
            "ragen.rollout.max_turns=2",
        ]
    return found


def _measured(outcome: Outcome, recipe: str, path: Path, expected: dict[str, float]) -> str:
    """Add a run's rows to the tables, and say its seconds."""
    rows = [row for row in RunFolder(path).rows() if row["step"]]
    for row in rows:
        phases = {name: row.get(f"{SECONDS}/{name}") for name in _PHASES}
        outcome.row("steps", recipe=recipe, step=row["step"], step_s=row[STEP_SECONDS], **phases)
    warm = rows[1:] or rows
    seconds, tokens = (mean(row[key] for row in warm) for key in (STEP_SECONDS, "perf/total_num_tokens"))
    for name in _PHASES:
        took = [row[f"{SECONDS}/{name}"] for row in warm if f"{SECONDS}/{name}" in row]
        if took:
            outcome.row(
                "phases", recipe=recipe, phase=name, seconds=mean(took), share=mean(took) / seconds,
                tokens_per_second=None if name == "gen" else tokens / mean(took), estimate_s=expected.get(name),
            )  # fmt: skip
    total = sum(expected.values()) if expected else None
    gpus = OmegaConf.load(path / "config.yaml").trainer.n_gpus_per_node  # one on the CPU, a logical one
    outcome.row(
        "seconds a step", recipe=recipe, measured_s=seconds, estimate_s=total, ragen_s=_RAGEN[recipe], tokens=tokens,
        tokens_per_second_and_gpu=tokens / seconds / gpus,
        response_tokens=mean(row.get("response_length/mean", float("nan")) for row in warm),
    )  # fmt: skip
    beside = f"estimate {total:.1f}, " if total else ""
    return f"{recipe.rpartition('/')[2]} {seconds:.1f} s a step ({beside}RAGEN {_RAGEN[recipe]:g})"
