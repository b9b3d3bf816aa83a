"""Which recipe fits on which card: computed for every recipe of the papers, measured for those that fit on this GPU."""

from __future__ import annotations

import time
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from ragen_lab.qualify import memory
from ragen_lab.qualify.cards import CARDS
from ragen_lab.qualify.findings import Outcome
from ragen_lab.qualify.shapes import shape_of

from ragen_verl.validation.composition import compose

__all__ = ["HARDWARE", "paper_recipes", "run"]

HARDWARE = ("gpu", "gpu_lora", "gpu_offload", "gpu_megatron", "gpu_h100_8")
_SHOWN = ("4090", "rtx6000-ada", "h100", "h200")
"""Cards of 24, 48, 80 and 141 GB."""
_ROWS = (1, 4)
"""Rows at their longest of the measured updates."""


def paper_recipes() -> list[str]:
    """The recipes of the papers."""
    return sorted(
        f"paper/{file.name.removesuffix('.yaml')}" for file in (files("ragen_verl.recipes") / "paper").iterdir()
    )


def run(outcome: Outcome, settings: dict[str, Any]) -> None:
    """Fills the part's outcome.

    Args:
        outcome: of the part.
        settings: `device`, `models` (folder), `shapes` to measure, `recipes` (all, if absent), `seconds`, `save`.
    """
    deadline = time.monotonic() + settings["seconds"]
    outcome.notes += [line for line in memory.__doc__.strip().splitlines() if line]
    fit = total = 0
    if settings["device"] != "cpu":
        _measure(outcome, settings, deadline)
    for name in settings.get("recipes") or paper_recipes():
        for hardware in HARDWARE:
            config = compose(name, [f"hardware={hardware}"])
            OmegaConf.resolve(config)
            config = OmegaConf.to_container(config)
            found_on = {card: memory.need(config, CARDS[card].gb) for card in _SHOWN}
            left = {card: _left(found, CARDS[card].gb) for card, found in found_on.items()}
            outcome.row("GB left of a card", recipe=name, hardware=hardware, **left)
            for card, found in found_on.items():
                total, fit = total + 1, fit + found.fits(CARDS[card].gb)
                outcome.row(
                    "how it adds up", recipe=name, hardware=hardware, card=card,
                    gpus=config["trainer"]["n_gpus_per_node"],
                    generating_gb=round(found.generating, 1), pushing_gb=round(found.pushing, 1),
                    updating_gb=round(found.updating, 1), worst=found.moment, host_gb=round(found.host, 1),
                    rows_cached=found.cached, margin_gb=round(found.margin(CARDS[card].gb), 1),
                    fits=found.fits(CARDS[card].gb),
                )  # fmt: skip
        settings["save"]()
    outcome.judge(
        f"{fit} of {total} combinations of recipe, hardware variant and card fit, every row at its longest (computed)."
    )


def _left(found: memory.Need, card: float) -> str:
    """The GB that are left, and a remark if they are not enough."""
    return f"{found.margin(card):+.1f}" + ("" if found.fits(card) else " (does not fit)")


def _measure(outcome: Outcome, settings: dict[str, Any], deadline: float) -> None:
    """Measure one update of the longest rows, next to its computed size."""
    from ragen_lab.qualify.throughput import peak_of_update

    for shape in settings["shapes"]:
        name = "paper/sokoban_ragen2" if shape == "Qwen2.5-3B" else "paper/sokoban_starpo_ppo"
        for rows in _ROWS:
            if time.monotonic() > deadline:
                return
            config = compose(name, ["hardware=gpu"])
            OmegaConf.resolve(config)
            part, own = config.actor_rollout_ref, shape_of(shape)
            length = rows * (config.data.max_prompt_length + config.data.max_response_length)
            role = memory.roles({**OmegaConf.to_container(config), "actor_rollout_ref": _with(part, shape)})["actor"]
            computed = role.updating + 2 * (own.embedding + 2 * own.block) / memory.GB
            computed += memory.activations(own, length, "update", part.model.enable_gradient_checkpointing)
            computed += memory.logits(own, length, "update", part.actor, part.model)
            try:
                peak: float | str = round(
                    peak_of_update(shape, settings["device"], Path(settings["models"]), name, rows), 1
                )
            except Exception as error:
                peak = f"{type(error).__name__}: {str(error)[:80]}"
            outcome.row("measured", shape=shape, rows=rows, tokens=length, peak_gb=peak, computed_gb=round(computed, 1))
            settings["save"]()


def _with(part: Any, shape: str) -> dict[str, Any]:
    found = OmegaConf.to_container(part)
    found["model"]["path"] = shape
    return found
