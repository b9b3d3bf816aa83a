"""Check the loss settings of a recipe: those without an effect in verl are refused, or named."""

from __future__ import annotations

import logging
from typing import Any

from omegaconf import DictConfig

from ragen_verl.errors import RecipeError
from ragen_verl.training.losses import POLICY_LOSSES
from ragen_verl.validation.verl_source import policy_losses, registered

__all__ = ["check_losses"]

# the expected gradient of logp - logp_ref is zero on the policy's own samples, so it does not pull to the reference
_NO_PULL = ("kl", "k1")  # RAGEN-2's sweep over KL has it
_log = logging.getLogger(__name__)

_NORMED = "seq-mean-token-sum-norm"

_ACTOR = "actor_rollout_ref.actor"


def check_losses(config: DictConfig) -> None:
    """Refuse loss settings that have no effect in verl, or another effect than their name says.

    Args:
        config: verl's whole configuration.

    Raises:
        RecipeError: one sentence that names the key and what to change.
    """
    _check_mode(config)
    _check_clipping(config.actor_rollout_ref.actor)
    _check_kl(config)
    _check_gradient_norm(_ACTOR, config.actor_rollout_ref.actor)
    _check_aggregation(_ACTOR, config.actor_rollout_ref.actor)
    if config.critic.enable:
        _check_gradient_norm("critic", config.critic)
        _check_aggregation("critic", config.critic)
    _check_correction(config.algorithm.rollout_correction)


def _check_mode(config: DictConfig) -> None:
    key, mode = f"{_ACTOR}.policy_loss.loss_mode", config.actor_rollout_ref.actor.policy_loss.loss_mode
    verls = policy_losses()
    if mode in POLICY_LOSSES and mode in verls:
        raise RecipeError(f"{key} {mode} is a policy loss of verl and of a plugin: give the plugin's another name.")
    others = {*verls, *registered("POLICY_LOSS_REGISTRY")}  # a plugin may use verl's own decorator
    if mode not in POLICY_LOSSES and mode in others:
        return
    loss = POLICY_LOSSES.find(mode, key, others)
    if loss.needs_turns and config.algorithm.rollout_correction.rollout_rs is not None:
        raise RecipeError(
            f"{key} {mode} reads turns off the response mask but "
            "algorithm.rollout_correction.rollout_rs takes tokens out of it: set rollout_rs to null, or the loss mode "
            "to vanilla."
        )


def _check_clipping(actor: DictConfig) -> None:
    if actor.clip_ratio not in (None, actor.clip_ratio_low):
        raise RecipeError(
            f"{_ACTOR}.clip_ratio is {actor.clip_ratio} but verl clips at clip_ratio_low, {actor.clip_ratio_low}, and "
            f"clip_ratio_high, {actor.clip_ratio_high}: set those, and clip_ratio to the same as clip_ratio_low."
        )


def _check_kl(config: DictConfig) -> None:
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    if actor.use_kl_loss:
        _check_coefficient(f"{_ACTOR}.use_kl_loss", f"{_ACTOR}.kl_loss_coef", actor.kl_loss_coef)
        if actor.kl_loss_type in _NO_PULL:
            _log.warning(
                f"{_ACTOR}.kl_loss_type {actor.kl_loss_type} has a gradient of zero mean, so it does not hold the "
                f"policy near the reference: use low_var_kl, k2 or {actor.kl_loss_type}+."
            )
        _check_not_full(f"{_ACTOR}.kl_loss_type", actor.kl_loss_type)
    if algorithm.use_kl_in_reward:
        control = algorithm.kl_ctrl
        _check_coefficient("algorithm.use_kl_in_reward", "algorithm.kl_ctrl.kl_coef", control.kl_coef)
        _check_not_full("algorithm.kl_penalty", algorithm.kl_penalty)


def _check_coefficient(switch: str, key: str, value: Any) -> None:
    if not isinstance(value, int | float) or value <= 0:
        raise RecipeError(
            f"{switch} is true but {key} is {value!r}: use a number above 0, or set {switch} to false, which also "
            "saves the reference model's pass."
        )


def _check_not_full(key: str, kind: str) -> None:
    if kind.removesuffix("+") == "full":
        raise RecipeError(f"{key} {kind} needs the logits of the whole vocabulary, which verl does not hand over.")


def _check_gradient_norm(path: str, block: DictConfig) -> None:
    """Refuse `grad_clip`, a key of verl's older engines: those of today clip at `optim.clip_grad`."""
    given = block.get("grad_clip", 1.0)
    if given not in (1.0, block.optim.clip_grad):
        raise RecipeError(
            f"{path}.grad_clip is {given!r} but verl's engines clip the gradient's norm at {path}.optim.clip_grad, "
            f"{block.optim.clip_grad}: set that one."
        )


def _check_aggregation(path: str, block: DictConfig) -> None:
    mode, factor = block.loss_agg_mode, block.loss_scale_factor
    if mode == _NORMED:
        if not isinstance(factor, int | float) or factor <= 0:
            raise RecipeError(
                f"{path}.loss_scale_factor is {factor!r} with {path}.loss_agg_mode {mode}: verl would divide by the "
                "longest response of each micro-batch, which is no constant; set it, to data.max_response_length for "
                "example."
            )
    elif factor is not None and path == _ACTOR:  # the critic's factor is copied from the actor's, in any mode
        raise RecipeError(
            f"{path}.loss_scale_factor is {factor!r} but only {path}.loss_agg_mode {_NORMED} divides by it, "
            f"not {mode}: set it to null, or the mode to that one."
        )


def _check_correction(correction: DictConfig) -> None:
    """Refuse keys that have no effect: verl corrects only in decoupled mode, and no loss receives this block."""
    path = "algorithm.rollout_correction"
    if correction.loss_type != "ppo_clip":
        raise RecipeError(
            f"{path}.loss_type is {correction.loss_type!r} but verl's synchronous trainer does not pass it on: set it "
            f"to ppo_clip, and choose the loss with {_ACTOR}.policy_loss.loss_mode."
        )
    if not correction.bypass_mode:
        return
    for key in ("rollout_is", "rollout_rs"):
        if correction[key] is not None:
            raise RecipeError(
                f"{path}.{key} is {correction[key]!r} but has no effect with {path}.bypass_mode true, where the "
                "engine's log-probabilities are the old ones: set one of the two to null or false."
            )
