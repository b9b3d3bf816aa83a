"""Seconds of a step beside their estimate: each part of it is in one phase, and a card is known by its name."""

from __future__ import annotations

import pytest
from ragen_lab.qualify import steps
from ragen_lab.qualify.cards import CARDS
from ragen_lab.qualify.estimates_page import estimated


@pytest.mark.parametrize("recipe", steps._RAGEN)
def test_the_phases_hold_every_part_of_the_estimate_once(recipe: str) -> None:
    phases = steps.estimates(recipe, [], CARDS["h100"])
    assert sum(phases.values()) == pytest.approx(estimated(recipe, [], CARDS["h100"]).seconds)
    assert {"gen", "old_log_prob", "update_actor", "update_critic", "update_weights"} <= set(phases)
    assert ("ref" in phases) == (recipe == "paper/sokoban_starpo_ppo")  # the one with a KL term
    assert steps.estimates(recipe, [], None) == {}


@pytest.mark.parametrize(
    ("name", "mib", "card"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, "h100"),
        ("NVIDIA H200", 143771, "h200"),
        ("NVIDIA A100-SXM4-80GB", 81920, "a100-80"),
        ("NVIDIA A100-SXM4-40GB", 40960, "a100-40"),
        ("NVIDIA A10", 23028, "a10"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, "rtx6000-ada"),
        ("NVIDIA GeForce RTX 4090", 24564, "4090"),
        ("NVIDIA H100 NVL", 95830, None),
        ("Tesla T4", 15360, None),
    ],
)
def test_the_card_is_known_by_name_and_memory(name: str, mib: int, card: str | None) -> None:
    gpus = [{"name": name, "memory_gb": round(mib * 2**20 / 1e9, 1)}]
    assert steps.card_of_gpu(gpus) is (CARDS[card] if card else None)


def test_a_machine_without_a_gpu_has_no_card() -> None:
    assert steps.card_of_gpu([]) is None
