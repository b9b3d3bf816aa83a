"""Sizes on the CPU, from the shapes of models: compared with the models themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray._private.utils import write_ray_address
from recipe_composition import composed
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, LlamaConfig, Phi3Config, Qwen2Config
from transformers.initialization import no_init_weights

from ragen_verl.cpu import accelerator, sizes
from ragen_verl.cpu.sizes import Shape, bucket, cache_bytes, micro_batch
from ragen_verl.validation.recipe import check

SMALL = {"vocab_size": 640, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
CONFIGS = [
    Qwen2Config(**SMALL, num_key_value_heads=2, intermediate_size=512),
    LlamaConfig(**SMALL, num_key_value_heads=1, intermediate_size=4096, head_dim=32),
    Phi3Config(**SMALL, num_key_value_heads=4, intermediate_size=2048, pad_token_id=0),
    GPT2Config(vocab_size=300, n_embd=128, n_layer=3, n_head=4),
]


def saved(config: AutoConfig, folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config.to_dict(), default=str))
    return str(folder)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_no_tensor_is_larger_than_the_shape_says(config, tmp_path: Path) -> None:
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(config)
    largest = max(tensor.numel() * 4 for tensor in model.state_dict().values())
    assert largest <= sizes.shape_of(saved(config, tmp_path)).largest <= 3 * largest


def test_a_model_nobody_has_downloaded_counts_as_large() -> None:
    for name in ("nobody/has-this", "/no/such/folder", "hdfs://somewhere/else/far/away"):
        assert bucket(name) == 2560


def test_image_models_are_read_by_their_text_part() -> None:
    assert Shape.of({"hidden_size": 1, "text_config": {"hidden_size": 64, "vocab_size": 10}}).hidden == 64


@given(groups=st.integers(1, 32), members=st.integers(1, 32), tokens=st.integers(1, 10**6))
def test_micro_batches_divide_an_update(groups: int, members: int, tokens: int) -> None:
    micro = micro_batch("nobody/has-this", tokens, groups, members, 1)
    assert 1 <= micro <= groups * members and groups * members % micro == 0


def test_the_cache_holds_two_rows_of_any_length(tmp_path: Path) -> None:
    model = saved(CONFIGS[0], tmp_path)
    row = 4 * 2 * 2 * 2 * 64 * 10**8
    assert cache_bytes(model, 10**8) == 2 * row
    assert cache_bytes(model, 1) == 2**28


def test_a_paper_recipe_takes_any_model_on_the_cpu(tmp_path: Path) -> None:
    model = saved(CONFIGS[1], tmp_path / "model")
    save_file({}, tmp_path / "model" / "model.safetensors")  # nothing loads it here
    config = composed("paper/frozen_lake_starpo_s", "hardware=cpu", f"actor_rollout_ref.model.path={model}")
    check(config, template=False)
    assert config.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes == 16
    assert 32 % config.critic.ppo_micro_batch_size_per_gpu == 0


@pytest.mark.parametrize("folder", ["RAY_TMPDIR", "TMPDIR"])
def test_a_head_of_a_cluster_is_no_machine_of_its_own(folder: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv(folder, str(tmp_path))
    for address, joins in ((None, False), ("local", False), ("auto", True), ("192.0.2.1:6379", True)):
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        if address:
            monkeypatch.setenv("RAY_ADDRESS", address)
        assert accelerator.joins_a_cluster() is joins
    monkeypatch.delenv("RAY_ADDRESS")
    (tmp_path / "ray").mkdir()
    write_ray_address("192.0.2.1:6379")
    for cpu_build in (False, True):  # vLLM's build for CPUs has no use for a cluster's devices
        monkeypatch.setattr(accelerator, "_is_for_cpus", lambda found=cpu_build: found)
        assert accelerator.joins_a_cluster() is not cpu_build
