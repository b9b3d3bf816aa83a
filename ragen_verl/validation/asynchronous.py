"""Check the trainer of a recipe, and the settings that asynchronous training (`mode=async`) needs.

verl's asynchronous trainer would accept everything that is refused here. It would then learn something else, or lose
episodes without a message.
"""

from __future__ import annotations

import math
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ragen_verl.errors import RecipeError
from ragen_verl.names import ASYNC_TRAINER, TRAINER

__all__ = ["check_trainer", "warmup_steps"]

_MODE = "trainer.v1.trainer_mode"
_WARMUP = "trainer.v1.colocate_async.num_warmup_batches"
_WEIGHTS = ("token", "sequence")
_CORRECTION = "algorithm.rollout_correction"

# key -> the value that asynchronous training needs, and the reason
_NEEDED = {
    "trainer.v1.sampler.custom_sampler.path": (
        "pkg://ragen_verl.training.oldest_groups",
        "verl's own buffer replaces failed groups without a bound",
    ),
    "trainer.v1.sampler.custom_sampler.name": (
        "OldestGroups",
        "verl's own buffer replaces failed groups without a bound",
    ),
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
        "a request that goes on after an update would draw its first random numbers again",
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


def _is_asynchronous(config: DictConfig) -> bool:
    """Whether the recipe trains while episodes are in flight."""
    return OmegaConf.select(config, _MODE) == ASYNC_TRAINER


def check_trainer(config: DictConfig) -> None:
    """Refuse trainers that are not this package's, and settings that asynchronous training cannot work with.

    Raises:
        RecipeError: one sentence that names the key and what to change.
    """
    found = OmegaConf.select(config, _MODE)
    if found == "separate_async":
        raise RecipeError(
            f"{_MODE} is {found!r}, whose trainer takes the groups of one update at a time, so there is no step to "
            "filter: use mode=async, on the devices of the trainer, or mode=sync."
        )
    if found not in (TRAINER, ASYNC_TRAINER):
        raise RecipeError(
            f"{_MODE} is {found!r} but a recipe with a ragen block needs {TRAINER!r} or {ASYNC_TRAINER!r}: leave it "
            "out, and use mode=async for asynchronous training."
        )
    if found == ASYNC_TRAINER:
        _check_asynchronous(config)


def warmup_steps(config: DictConfig) -> int:
    """How many steps' groups are drawn before the first update; the data stream is ahead by that number."""
    return math.ceil(OmegaConf.select(config, _WARMUP)) if _is_asynchronous(config) else 0


def _check_asynchronous(config: DictConfig) -> None:
    for key, (wanted, why) in _NEEDED.items():
        value = OmegaConf.select(config, key)
        if value != wanted:
            raise RecipeError(
                f"{key} is {_yaml(value)} but has to be {_yaml(wanted)} with mode=async, since {why}: set it, or use "
                "mode=sync."
            )
    weights = OmegaConf.select(config, f"{_CORRECTION}.rollout_is")
    if weights not in _WEIGHTS:
        raise RecipeError(
            f"{_CORRECTION}.rollout_is is {_yaml(weights)} but mode=async trains on samples of older weights, which "
            f"need importance weights: set it to {' or '.join(_WEIGHTS)}, or use mode=sync."
        )
    if (size := config.data.gen_batch_size) not in (None, 1):
        raise RecipeError(
            f"data.gen_batch_size is {size} but with mode=async groups come off the data stream one by one: leave it "
            "out."
        )
    warmup = OmegaConf.select(config, _WARMUP)
    if not isinstance(warmup, int | float) or isinstance(warmup, bool) or warmup < 0:
        raise RecipeError(
            f"{_WARMUP} is {_yaml(warmup)} but has to be 0 or more: steps of groups in flight beforehand."
        )


def _yaml(value: Any) -> str:
    """A value as it is written in YAML."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)
