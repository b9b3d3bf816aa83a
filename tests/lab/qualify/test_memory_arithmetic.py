"""The memory map's arithmetic against the models' published sizes and against sums made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf
from ragen_lab.qualify import memory
from ragen_lab.qualify.shapes import SHAPES, shape_of
from recipe_composition import composed
from safetensors import safe_open

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.errors import RecipeError

PPO, GRPO, LARGE = "paper/sokoban_starpo_ppo", "paper/sokoban_starpo_grpo", "paper/sokoban_ragen2"


def config(recipe: str, hardware: str = "gpu", **keys: Any) -> dict[str, Any]:
    found = composed(recipe, f"hardware={hardware}")
    for key, value in keys.items():
        OmegaConf.update(found, key.replace("__", "."), value, force_add=True)
    OmegaConf.resolve(found)
    return OmegaConf.to_container(found)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen2.5-0.5B", 494_032_768),
        ("Qwen2.5-1.5B", 1_543_714_304),
        ("Qwen2.5-3B", 3_085_938_688),
        ("Qwen2.5-7B", 7_615_616_512),
        ("Qwen2.5-14B", 14_770_033_664),
    ],
)
def test_shapes_have_the_published_number_of_parameters(name: str, parameters: int) -> None:
    assert SHAPES[name].parameters == parameters


def test_a_model_is_found_by_its_name_on_the_hub() -> None:
    assert shape_of("Qwen/Qwen2.5-0.5B-Instruct") == SHAPES["Qwen2.5-0.5B"]
    folder = nano_model_path()
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert shape_of(str(folder)).parameters == sum(weights.get_tensor(name).numel() for name in weights.keys())  # noqa: SIM118
    with pytest.raises(RecipeError, match="not known"):
        shape_of("Qwen/Qwen2.5-0.6B")


@pytest.mark.parametrize(
    ("recipe", "gb"),
    [(PPO, 11.9), (GRPO, 5.9), (LARGE, 74.1)],  # twelve bytes for each parameter of actor and critic
)
def test_what_the_trainer_holds_is_weights_and_moments(recipe: str, gb: float) -> None:
    assert sum(role.held for role in memory.roles(config(recipe)).values()) == pytest.approx(gb, abs=0.05)


def test_generating_adds_the_engine_and_two_processes() -> None:
    share = "actor_rollout_ref__rollout__gpu_memory_utilization"
    found = memory.need(config(PPO, **{share: 0.5}), 48)
    assert found.generating == pytest.approx(11.86 + 0.5 * 48 + 2 * memory.CONTEXT, abs=0.01)
    assert memory.need(config(GRPO, **{share: 0.5}), 24).generating == pytest.approx(17.9 + 1.2, abs=0.05)


def test_an_engine_apart_takes_none_of_the_trainers() -> None:
    together, apart = (memory.need(config(PPO, actor_rollout_ref__hybrid_engine=one), 80) for one in (True, False))
    assert apart.generating == pytest.approx(together.engine + memory.CONTEXT)
    assert together.updating - apart.updating == pytest.approx(together.engine + memory.CONTEXT)  # it does not sleep


def test_a_reference_model_stays_in_main_memory() -> None:
    """verl 0.9.1 keeps it there on FSDP whatever param_offload says (workers/engine/fsdp/transformer_impl.py)."""
    found = memory.roles(config(GRPO, actor_rollout_ref__ref__fsdp_config__param_offload=False))["ref"]
    assert found.held == found.passing == 0 and found.waiting == pytest.approx(2 * 0.494, abs=0.01)


def test_weights_that_stay_gathered_are_counted() -> None:
    key = "actor_rollout_ref__actor__fsdp_config__reshard_after_forward"
    again, once = (memory.need(config(LARGE, "gpu_h100_8", **{key: one}), 80) for one in (True, False))
    assert once.parts["gathered"] == pytest.approx(2 * 3.086, abs=0.01) and once.updating - again.updating > 5


@pytest.mark.parametrize("card", [24, 48, 80, 141])
def test_three_billion_parameters_need_offload(card: int) -> None:
    plain, offloaded = (memory.need(config(LARGE, one), card) for one in ("gpu", "gpu_offload"))
    assert not plain.fits(card)
    assert offloaded.host == pytest.approx(74.1, abs=0.05)  # waits in main memory
    assert offloaded.generating == pytest.approx(0.5 * card + 2 * memory.CONTEXT)
    assert offloaded.fits(card) == (card >= 80)


def test_logits_of_fourteen_thousand_tokens() -> None:
    """One copy of the logits in bf16 has 4.4 GB, a chunk in float32 and what is computed of it 5 GB."""
    shape, count = SHAPES["Qwen2.5-0.5B"], 4 * 3600
    copy, chunk = 2 * count * 151936 / 1e9, 16 * 2048 * 151936 / 1e9

    def gb(kind: str, entropy: float = 0.0, fused: bool = False, **engine: bool) -> float:
        block = {"fsdp_config": engine, "entropy_coeff": entropy}
        return memory.logits(shape, count, kind, block, {"use_fused_kernels": fused})

    assert gb("update") == pytest.approx(2 * copy + chunk)
    for spared in ({"use_torch_compile": True}, {"entropy_from_logits_with_chunking": True}):
        assert gb("update", 0.001, **spared) == pytest.approx(3 * copy + chunk)
    assert gb("update", 0.001) == pytest.approx(7 * copy + chunk)  # a softmax in float32, and its product
    assert gb("forward") == pytest.approx(copy + chunk)
    assert gb("update", 0.001, fused=True) < 3


def test_a_compiled_entropy_keeps_only_the_logits() -> None:
    """What verl's compiled entropy saves for its backward pass, as torch divides it; the kernels need a GPU."""
    import torch
    from verl.utils.torch_functional import entropy_from_logits

    logits, kept = torch.randn(32, 500).bfloat16().requires_grad_(), {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    compiled = torch.compile(entropy_from_logits, dynamic=True, backend="aot_eager_decomp_partition")
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        found = compiled(logits)
    assert found.requires_grad and sum(one.numel() > 32 for one in kept.values()) == 1


def test_checkpointing_keeps_one_block_and_every_input() -> None:
    shape = SHAPES["Qwen2.5-0.5B"]
    whole, checkpointed = (memory.activations(shape, 14_400, "update", one) for one in (False, True))
    assert 15 < whole < 20
    assert checkpointed == pytest.approx(14_400 * 2 * 896 * 24 / 1e9 + whole / 24)
    assert memory.activations(shape, 14_400, "forward", False) == pytest.approx(whole / 24)


def test_a_token_budget_bounds_a_micro_batch() -> None:
    fixed = {"use_dynamic_bsz": False, "ppo_micro_batch_size_per_gpu": 4, "ppo_max_token_len_per_gpu": 16384}
    assert memory.tokens(fixed, "ppo", 3600) == 14_400
    assert memory.tokens({**fixed, "use_dynamic_bsz": True}, "ppo", 3600) == 16_384
    assert memory.tokens({**fixed, "use_dynamic_bsz": True}, "ppo", 20_000) == 20_000  # a row is never cut


def test_several_gpus_share_what_is_held() -> None:
    one, eight = (config(PPO, trainer__n_gpus_per_node=count) for count in (1, 8))
    assert memory.roles(one)["actor"].held == pytest.approx(8 * memory.roles(eight)["actor"].held)


def test_an_adapter_has_moments_of_its_own_only() -> None:
    full, adapted = (memory.roles(config(GRPO, one)) for one in ("gpu", "gpu_lora"))
    trained = SHAPES["Qwen2.5-0.5B"].adapter(64)
    assert adapted["actor"].moments == pytest.approx(8 * trained / 1e9)
    assert adapted["actor"].weights == pytest.approx(full["actor"].weights + 4 * trained / 1e9)
    assert "ref" in full and "ref" not in adapted  # without its adapter the actor is the reference


def test_the_cache_holds_whole_rows_after_the_weights() -> None:
    shape = SHAPES["Qwen2.5-0.5B"]
    row = 3600 * 24 * 2 * 128 * 2
    room = (2 * shape.parameters + memory.ASLEEP * memory.GB + 10.5 * row) / memory.GB
    assert memory.cached_rows(shape, room, 3600) == 10
    assert memory.cached_rows(shape, 1.0, 3600) == 0


def test_a_recipe_without_room_for_a_row_does_not_fit() -> None:
    found = memory.need(config(PPO, actor_rollout_ref__rollout__gpu_memory_utilization=0.01), 141)
    assert found.margin(141) > 0 and found.cached == 0 and not found.fits(141)
