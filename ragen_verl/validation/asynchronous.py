"""Check the settings that asynchronous training (`mode=async`, `mode=disaggregated`) needs.

verl's asynchronous trainers would accept nearly everything that is refused here. They would then learn something else,
lose episodes without a message, or wait forever.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ragen_verl.errors import RecipeError, adding_package

__all__ = ["check_asynchronous"]

_ENGINE = "actor_rollout_ref.rollout"
_WEIGHTS = ("token", "sequence")
_CORRECTION = "algorithm.rollout_correction"

# key -> the value that asynchronous training needs, and the reason
_NEEDED = {
    "trainer.v1.sampler.max_off_policy_strategy": (
        "wait",
        "to drop old groups would leave out the slowest episodes, and nobody would see it",
    ),
    "ragen.rollout.loss_on_env_tokens": (
        False,
        "the engine has no log-probabilities of environment tokens, so they would have no importance weights",
    ),
    "ragen.rollout.seeded_sampling": (
        False,
        "a request that continues after an update would draw its first random numbers again",
    ),
    f"{_CORRECTION}.bypass_mode": (
        False,
        "with it the engine's log-probabilities are the old ones, which leaves nothing to weigh old samples by",
    ),
    "actor_rollout_ref.rollout.calculate_log_probs": (
        True,
        "importance weights are made of the engine's log-probabilities",
    ),
}


# the same for an engine with devices of its own
_NEEDED_TO_DISAGGREGATE = {
    "actor_rollout_ref.hybrid_engine": (False, "nobody would use a second engine on the trainer's devices"),
    "trainer.v1.separate_async.parameter_sync_step": (1, "the filter needs whole steps"),
    "trainer.v1.separate_async.hybrid_rollout.enable_switch": (
        False,
        "there is no engine on the trainer's devices to switch to",
    ),
}


def check_asynchronous(config: DictConfig, mode: str, warmup: str) -> None:
    """Refuse settings that asynchronous training cannot work with.

    Args:
        config: verl's whole configuration.
        mode: async or disaggregated.
        warmup: the key of its number of warm-up batches.

    Raises:
        RecipeError: one sentence that names the key and what to change.
    """
    _check_needed(config, mode, _NEEDED)
    weights = OmegaConf.select(config, f"{_CORRECTION}.rollout_is")
    if weights not in _WEIGHTS:
        raise RecipeError(
            f"{_CORRECTION}.rollout_is is {_yaml(weights)} but mode={mode} trains on samples of older weights, which "
            f"need importance weights: set it to {' or '.join(_WEIGHTS)}, or use mode=sync."
        )
    if (size := config.data.gen_batch_size) not in (None, 1):
        raise RecipeError(
            f"data.gen_batch_size is {size} but with mode={mode} groups come off the data stream one by one: leave it "
            "out."
        )
    steps = OmegaConf.select(config, warmup)
    if not isinstance(steps, int | float) or isinstance(steps, bool) or steps < 0:
        raise RecipeError(f"{warmup} is {_yaml(steps)} but has to be 0 or more: steps of groups in flight beforehand.")
    if mode == "disaggregated":
        _check_disaggregated(config)


def _check_disaggregated(config: DictConfig) -> None:
    _check_needed(config, "disaggregated", _NEEDED_TO_DISAGGREGATE)
    engine = config.actor_rollout_ref.rollout
    devices = engine.nnodes * engine.n_gpus_per_node
    parts = engine.tensor_model_parallel_size * engine.data_parallel_size * engine.pipeline_model_parallel_size
    if devices < 1 or devices % parts:
        raise RecipeError(
            f"{_ENGINE}.nnodes is {engine.nnodes} and n_gpus_per_node is {engine.n_gpus_per_node}, but with "
            f"mode=disaggregated the engine needs one replica or more of {parts} devices of its own: set both."
        )
    backend = engine.checkpoint_engine.backend
    if backend == "naive":
        raise RecipeError(
            f"{_ENGINE}.checkpoint_engine.backend is naive but cannot reach an engine on other devices: leave out what "
            "mode=disaggregated sets (gloo), or use nccl."
        )
    if backend == "nccl" and find_spec("cupy") is None:
        raise RecipeError(
            f"{_ENGINE}.checkpoint_engine.backend is nccl, which needs cupy: {adding_package('cupy-cuda13x')}, or "
            "leave it out, and gloo is used."
        )
    model = config.actor_rollout_ref.model
    if model.lora_rank > 0 and not model.lora.get("merge", False):
        raise RecipeError(
            "actor_rollout_ref.model.lora_rank is set, and with mode=disaggregated verl would push weights without the "
            "adapter: use mode=async, or set actor_rollout_ref.model.lora.merge to true."
        )


def _check_needed(config: DictConfig, mode: str, needed: Mapping[str, tuple[Any, str]]) -> None:
    for key, (wanted, why) in needed.items():
        value = OmegaConf.select(config, key)
        if value != wanted:
            raise RecipeError(
                f"{key} is {_yaml(value)} but has to be {_yaml(wanted)} with mode={mode}, since {why}: set it, or use "
                "mode=sync."
            )


def _yaml(value: Any) -> str:
    """A value as it is written in YAML."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)
