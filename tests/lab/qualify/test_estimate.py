"""The estimate of a step against sums made by hand, and its page."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf
from paths import ROOT
from ragen_lab.qualify import estimate as module
from ragen_lab.qualify.cards import CARDS, Card
from ragen_lab.qualify.estimate import Estimate, Work, estimate
from ragen_lab.qualify.estimates_page import section
from ragen_lab.qualify.memory_map import paper_recipes
from ragen_lab.qualify.shapes import SHAPES
from recipe_composition import changed, composed
from typer.testing import CliRunner

from ragen_verl.cli import app

SMALL, LARGE = "paper/sokoban_starpo_s", "paper/sokoban_ragen2"
H100 = CARDS["h100"]


def found(recipe: str, *keys: str, hardware: str = "", card: Card = H100) -> Estimate:
    config = changed(composed(recipe, *([f"hardware={hardware}"] if hardware else [])), *keys)
    OmegaConf.resolve(config)
    return estimate(OmegaConf.to_container(config), card)


def parts(one: Estimate) -> dict[str, Any]:
    return {part.name: part for part in one.parts}


def test_the_work_of_a_step_is_the_recipes() -> None:
    """8 groups of 16, five turns, a quarter of the groups, one update of 32 trajectories."""
    assert found(SMALL).work == Work(groups=8, rows=128, kept=32, turns=5, length=300 + 500 + 320, updates=1)
    assert found(SMALL, "ragen.filter.strategy=top_p", "ragen.filter.value=0.5").work.kept == 64
    assert found("paper/bandit_starpo_ppo").work.turns == 1 and found("paper/bandit_starpo_ppo").work.kept == 128


@pytest.mark.parametrize("recipe", [SMALL, LARGE])
def test_no_estimate_is_below_the_roofline(recipe: str) -> None:
    one = found(recipe)
    assert all(part.estimate >= part.roofline >= 0 for part in one.parts)
    assert one.roofline == pytest.approx(sum(part.roofline for part in one.parts)) and one.seconds > one.roofline


def test_an_update_is_bound_by_its_arithmetic() -> None:
    """Six operations for each parameter and token, and attention's over half of a row on average."""
    shape, tokens = SHAPES["Qwen2.5-0.5B"], 32 * 1120
    matrices = shape.layers * shape.block + shape.vocabulary * shape.hidden
    flops = 6 * tokens * matrices + 3 * tokens * 4 * 24 * 896 * 560
    actor = parts(found(SMALL))["actor update"]
    assert actor.bound == "arithmetic" and actor.roofline == pytest.approx(flops / 989e12)


def test_an_answer_is_bound_by_what_is_read_of_memory() -> None:
    """650 steps read the weights in bf16; 128 rows read a cache of 12,288 bytes a token, 710 tokens on average."""
    decode = parts(found(SMALL))["decode"]
    traffic = 650 * 2 * 494_032_768 + 128 * 500 * 710 * 12_288
    assert decode.bound == "bandwidth" and decode.roofline == pytest.approx(traffic / 3350e9)


def test_a_mask_and_a_second_forward_pass_cost_time() -> None:
    plain = parts(found(SMALL))["actor update"]
    model = "actor_rollout_ref.model"
    for key in ("enable_gradient_checkpointing=true", "override_config.attn_implementation=sdpa"):
        other = parts(found(SMALL, f"{model}.{key}"))["actor update"]
        assert other.roofline == plain.roofline and other.estimate > 1.05 * plain.estimate


def test_models_that_wait_in_main_memory_go_there_and_back() -> None:
    """An update moves weights and moments of 3.086 billion parameters both ways, 24 bytes each."""
    config = composed(LARGE)
    offloaded, kept = (
        parts(found(LARGE, f"actor_rollout_ref.actor.fsdp_config.param_offload={one}",
                    f"actor_rollout_ref.actor.fsdp_config.optimizer_offload={one}"))["actor update"]
        for one in ("true", "false")
    )  # fmt: skip
    assert config.actor_rollout_ref.actor.fsdp_config.param_offload
    assert offloaded.roofline - kept.roofline == pytest.approx(24 * 3_085_938_688 / 64e9)


def test_eight_gpus_share_the_work_and_talk() -> None:
    one, eight = (parts(found(LARGE, hardware=name)) for name in ("gpu_offload", "gpu_h100_8"))
    assert eight["prefill"].roofline == pytest.approx(one["prefill"].roofline / 8, rel=0.3)
    assert eight["actor update"].estimate < one["actor update"].estimate / 4
    slow = parts(found(LARGE, hardware="gpu_h100_8", card=Card(81559, 989, 3350, 10, 64)))["actor update"]
    assert slow.bound == "link" and slow.roofline > 5 * eight["actor update"].roofline


def test_a_push_through_main_memory_is_seen() -> None:
    keys = ("actor_rollout_ref.hybrid_engine=false", "actor_rollout_ref.rollout.nnodes=1")
    backend = "actor_rollout_ref.rollout.checkpoint_engine.backend"
    gloo, nccl = (parts(found(SMALL, *keys, f"{backend}={one}"))["sleep, push, wake"] for one in ("gloo", "nccl"))
    assert gloo.roofline - nccl.roofline == pytest.approx(4 * 494_032_768 / 64e9)


def test_the_page_is_what_the_command_writes() -> None:
    text = (ROOT / "docs/estimates.md").read_text()
    assert [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")] == paper_recipes()
    assert section(SMALL) in text, "run: python -m ragen_lab.qualify.estimates_page docs/estimates.md"
    assert module.ASSUMED in text


def test_overrides_belong_to_an_estimate() -> None:
    done = CliRunner().invoke(app, ["qualify", "hardware=gpu"])
    assert done.exit_code == 2 and "only --estimate RECIPE takes one" in done.output
    done = CliRunner().invoke(app, ["qualify", "--estimate", SMALL, "--card", "h1000"])
    assert done.exit_code == 2 and "no known card" in done.output


def test_the_command_prints_parts_and_memory() -> None:
    done = CliRunner().invoke(app, ["qualify", "--estimate", SMALL, "hardware=gpu_offload", "--card", "4090"])
    assert done.exit_code == 0, done.output
    for words in ("actor update", "It fits", "nothing was measured"):
        assert words in done.output
