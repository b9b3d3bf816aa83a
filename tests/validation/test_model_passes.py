"""What is refused because verl's engines would fail on it, or compute it wrongly."""

from __future__ import annotations

import pytest
from omegaconf import DictConfig, OmegaConf

from ragen_verl.errors import RecipeError
from ragen_verl.validation import model


def config(attention: str | None, ulysses: int = 1, critic: dict | None = None, strategy: str = "fsdp2") -> DictConfig:
    override = {} if attention is None else {"attn_implementation": attention}
    actor = {"strategy": strategy, "fsdp_config": {"ulysses_sequence_parallel_size": ulysses}}
    whole = {"actor_rollout_ref": {"model": {"override_config": override}, "actor": actor}, "critic": {"enable": False}}
    if critic is not None:
        whole["critic"] = {"enable": True, "strategy": strategy, "fsdp": {}, "model": {**critic, "override_config": {}}}
    return OmegaConf.create(whole)


def installed(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    monkeypatch.setattr(model, "find_spec", lambda name: name if name in packages else None)


@pytest.mark.parametrize("attention", [None, "flash_attention_2"])
def test_flash_attention_is_refused_where_it_is_missing(monkeypatch, attention: str | None) -> None:
    installed(monkeypatch)
    with pytest.raises(RecipeError, match="flash-attn nor kernels is installed: set it to sdpa"):
        model._check_passes(config(attention))
    model._check_passes(config("sdpa"))
    model._check_passes(config(attention, strategy="megatron"))
    installed(monkeypatch, "kernels")
    model._check_passes(config(attention))


def test_sequences_are_split_in_flash_attention_alone(monkeypatch) -> None:
    installed(monkeypatch, "flash_attn")
    model._check_passes(config("flash_attention_2", ulysses=2))
    with pytest.raises(RecipeError, match="log-probabilities would be wrong"):
        model._check_passes(config("sdpa", ulysses=2))


def test_a_critic_takes_no_adapter(monkeypatch) -> None:
    installed(monkeypatch, "flash_attn")
    model._check_passes(config("sdpa", critic={"lora_rank": 0}))
    with pytest.raises(RecipeError, match=r"critic\.model\.lora_rank is 8 .* set it to 0"):
        model._check_passes(config("sdpa", critic={"lora_rank": 8}))
