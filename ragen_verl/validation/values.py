"""The table of checks of single keys: verl takes these values without a look, and fails after Ray, weights and engine.

Numbers stand in `_RULES`, a rule for all keys that a pattern names. Choices are read from verl's own source: what a
dataclass compares its fields with, and the registries of `_CHOICES`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import translate
from typing import Any

from ragen_verl.errors import RecipeError, nearest
from ragen_verl.validation.verl_source import engines, field_choices, literal, optimizers, rollouts

__all__ = ["PATTERNS", "check_values"]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(least: float = -math.inf) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _within(test: Callable[[float], bool]) -> Callable[[Any], bool]:
    return lambda value: _number(value) and test(value)


def _all_below_1(value: Any) -> bool:
    return isinstance(value, list) and all(_number(one) and 0 <= one < 1 for one in value)


_DTYPES = ("fp16", "float16", "fp32", "float32", "bf16", "bfloat16")  # verl.utils.torch_dtypes
_ATTENTION = ("eager", "sdpa", "varlen", "flex_attention", "flash_attention_2", "flash_attention_3")
_KL = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "full")
_KL_KINDS = frozenset({*_KL, *(f"{one}+" for one in _KL)})
_PUSHES = frozenset({"naive", "nccl", "hccl", "gloo", "nixl", "mooncake", "kimi_ckpt_engine", "delta_sharded"})
_ABOVE_0 = ("actor_rollout_ref.rollout.temperature", "*.optim.clip_grad", "*.cliprange_value", "*.clip_ratio_high")
_SHARES = ("*.top_p", "*.gpu_memory_utilization")
_TO_1 = ("*.lr_warmup_steps_ratio", "algorithm.gamma", "algorithm.lam")
_ONE_OR_MORE = (_whole(1), "a whole number of 1 or more")
_ZERO_OR_MORE = (_whole(0), "a whole number of 0 or more")

# patterns of keys in full, `*` for any part; the first that matches a key counts; null is left to verl
_RULES: tuple[tuple[str, tuple[Callable[[Any], bool], str]], ...] = (
    *((key, (_within(lambda value: value > 0), "above 0")) for key in _ABOVE_0),
    *((key, (_within(lambda value: 0 < value <= 1), "above 0 and at most 1")) for key in _SHARES),
    ("*.clip_ratio_low", (_within(lambda value: 0 < value < 1), "above 0 and below 1")),
    (
        "*.clip_ratio_c",
        (_within(lambda value: value > 1), "above 1: the ratio's bound where the advantage is negative"),
    ),
    ("*.top_k", (_whole(-1), "a whole number of 1 or more, or -1 for all tokens")),
    ("*.betas", (_all_below_1, "numbers from 0 to below 1")),
    *((f"*.{name}", (_DTYPES.__contains__, "fp32, bf16 or fp16")) for name in ("model_dtype", "fsdp*dtype")),
    ("*.attn_implementation", (lambda value: value in _ATTENTION or "/" in str(value), ", ".join(_ATTENTION))),
    *((key, (_within(lambda value: 0 <= value <= 1), "from 0 to 1")) for key in _TO_1),
    *((f"*.{name}", (_number, "a number")) for name in ("entropy_coeff", "clip_cov_lb")),
    ("actor_rollout_ref.rollout.nnodes", _ZERO_OR_MORE),  # 0: on the trainer's devices
    *((key, _ZERO_OR_MORE) for key in ("*.lora_rank", "trainer.critic_warmup", "*num_workers")),
    *((key, (_whole(), "a whole number")) for key in ("trainer.save_freq", "trainer.test_freq", "*.seed")),
    *((f"*.{name}", _ONE_OR_MORE) for name in ("n", "nnodes", "n_gpus_per_node", "ppo_epochs", "total_epochs")),
    *((f"*{end}", _ONE_OR_MORE) for end in ("_batch_size", "_batch_size_per_gpu", "_parallel_size", "_ckpt_to_keep")),
    *((f"*{end}", _ONE_OR_MORE) for end in (".max_num_seqs", ".max_num_batched_tokens", "_token_len_per_gpu")),
    ("*.lora_alpha", _ONE_OR_MORE),
    *((f"actor_rollout_ref.rollout.{name}", _ONE_OR_MORE) for name in ("prompt_length", "response_length")),
)
PATTERNS = [(re.compile(translate(pattern)), *rule) for pattern, rule in _RULES]

# the checks that follow compute with these, so that null is refused too
_NEEDED = (
    *(f"actor_rollout_ref.rollout.{name}" for name in ("n", "prompt_length", "response_length")),
    *(f"{block}.ppo_mini_batch_size" for block in ("actor_rollout_ref.actor", "critic")),
    *("trainer.nnodes", "trainer.n_gpus_per_node"),
    *(f"actor_rollout_ref.actor.clip_ratio_{name}" for name in ("low", "high", "c")),
)

# blocks of verl that are no part of a multi-turn training, and blocks with keys of somebody else
_OTHERS = ("ragen.", "hydra.", "ray_kwargs.", "distillation.", "reward.", "reward_model.", "custom_reward_function.")

# key -> the values that verl knows, read when they are asked for
_CHOICES: dict[str, Callable[[], frozenset[str]]] = {
    "actor_rollout_ref.actor.strategy": engines,
    "actor_rollout_ref.ref.strategy": engines,
    "critic.strategy": engines,
    "actor_rollout_ref.rollout.name": rollouts,
    "actor_rollout_ref.rollout.checkpoint_engine.backend": lambda: _PUSHES,
    "actor_rollout_ref.model.fused_kernel_options.impl_backend": lambda: frozenset({"torch", "triton", "liger"}),
    # what vLLM and verl's PrecisionType both take
    "actor_rollout_ref.rollout.dtype": lambda: frozenset({"bfloat16", "float16", "float32", "half", "float", "auto"}),
    "actor_rollout_ref.rollout.mode": lambda: frozenset({"async"}),
    "actor_rollout_ref.rollout.load_format": lambda: literal("vllm.model_executor.model_loader", "LoadFormats"),
    "actor_rollout_ref.rollout.logprobs_mode": lambda: literal("vllm.config.model", "LogprobsMode"),
    "actor_rollout_ref.rollout.scheduling_policy": lambda: literal("vllm.config.scheduler", "SchedulerPolicy"),
    "trainer.resume_mode": lambda: frozenset({"auto", "disable", "resume_path"}),
    "trainer.v1.sampler.max_off_policy_strategy": lambda: frozenset({"drop", "wait"}),
    "trainer.device": lambda: frozenset({"cpu", "cuda", "npu"}),  # verl.utils.device
    "critic.loss_agg_mode": lambda: field_choices("verl.workers.config.ActorConfig")["loss_agg_mode"],
    **dict.fromkeys(("algorithm.kl_penalty", "actor_rollout_ref.actor.kl_loss_type"), lambda: _KL_KINDS),
    "algorithm.kl_ctrl.type": lambda: frozenset({"fixed", "adaptive"}),  # core_algos.get_kl_controller
    "data.truncation": lambda: frozenset({"error", "left", "right", "middle"}),  # verl.utils.torch_functional
}


def check_values(config: Mapping[str, Any]) -> None:
    """Refuse values that verl cannot work with, key by key.

    Args:
        config: verl's whole configuration as plain data, interpolations resolved.

    Raises:
        RecipeError: one sentence that names the first such key, its value and what it has to be.
    """
    found = dict(_flat(config))
    for key, value in found.items():
        if (value is None and key not in _NEEDED) or key.startswith(_OTHERS):
            continue
        test, words = next(((test, words) for one, test, words in PATTERNS if one.match(key)), (None, ""))
        if test and not test(value):
            raise RecipeError(f"{key} is {value!r} but has to be {words}.")
        if key in _CHOICES and not found.get(f"{key.removesuffix('backend')}custom_backend_module"):
            _check_choice(key, value, _CHOICES[key]())
    for path, block in _blocks(config):
        if path.startswith(_OTHERS):
            continue
        for name, choices in field_choices(block["_target_"]).items():
            if isinstance(block.get(name), str):
                _check_choice(f"{path}.{name}", block[name], choices)
        if isinstance(block.get("optimizer_impl"), str):
            _check_choice(f"{path}.optimizer", block.get("optimizer"), optimizers(block["optimizer_impl"]))


def _check_choice(key: str, value: Any, known: frozenset[str]) -> None:
    if known and (not isinstance(value, str) or value not in known):
        raise RecipeError(f"{key} is {value!r} but verl knows {', '.join(sorted(known))}: {nearest(value, known)}")


def _flat(block: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in block.items():
        where = f"{path}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{where}.")
        else:
            yield where, value


def _blocks(block: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(key in full, block) of every block that names a dataclass of verl."""
    if str(block.get("_target_", "")).startswith("verl."):
        yield path.removesuffix("."), block
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield from _blocks(value, f"{path}{key}.")
