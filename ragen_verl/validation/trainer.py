"""Check a recipe's trainer: this package's, with its own sampler; see `asynchronous` for the modes other than sync."""

from __future__ import annotations

import math

from omegaconf import DictConfig, OmegaConf

from ragen_verl.errors import RecipeError
from ragen_verl.names import ASYNC_TRAINER, DISAGGREGATED_TRAINER, SAMPLER, TRAINER

__all__ = ["check_trainer", "warmup_steps"]

_MODE = "trainer.v1.trainer_mode"
_NAMES = {ASYNC_TRAINER: "async", DISAGGREGATED_TRAINER: "disaggregated"}  # trainer -> mode
_WARMUPS = {
    ASYNC_TRAINER: "trainer.v1.colocate_async.num_warmup_batches",
    DISAGGREGATED_TRAINER: "trainer.v1.separate_async.num_warmup_batches",
}


def check_trainer(config: DictConfig) -> None:
    """Refuse trainers that are not this package's, and settings that asynchronous training cannot work with.

    Raises:
        RecipeError: one sentence that names the key and what to change.
    """
    found = OmegaConf.select(config, _MODE)
    if found not in (TRAINER, *_NAMES):
        known = ", ".join(map(repr, (TRAINER, *_NAMES)))
        raise RecipeError(
            f"{_MODE} is {found!r} but a recipe with a ragen block needs one of {known}: leave it out, and use "
            "mode=async or mode=disaggregated for asynchronous training."
        )
    chosen = config.trainer.v1.sampler
    if (chosen.custom_sampler.path or chosen.sampler_kwargs) and chosen.custom_sampler.path != f"pkg://{SAMPLER}":
        raise RecipeError(
            "trainer.v1.sampler.custom_sampler or sampler_kwargs is set but the trainers of ragen_verl bring their own "
            "sampler, which filter and dynamic sampling need: leave both out."
        )
    if found != DISAGGREGATED_TRAINER and not OmegaConf.select(config, "actor_rollout_ref.hybrid_engine"):
        raise RecipeError(
            "actor_rollout_ref.hybrid_engine is false but the engine shares the trainer's devices: leave it out, or "
            "use mode=disaggregated."
        )
    if found in _NAMES:
        from ragen_verl.validation.asynchronous import check_asynchronous

        check_asynchronous(config, _NAMES[found], _WARMUPS[found])


def warmup_steps(config: DictConfig) -> int:
    """How many steps' groups are drawn before the first update; the data stream is ahead by that number."""
    warmup = _WARMUPS.get(OmegaConf.select(config, _MODE))
    return math.ceil(OmegaConf.select(config, warmup)) if warmup else 0
