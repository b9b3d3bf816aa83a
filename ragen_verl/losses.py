"""Policy losses that verl does not have, and what a recipe's loss settings must not mean in silence.

verl owns the objective (clip range, dual clip, entropy, KL) and five ways to average it over tokens and rows. It has
none that knows turns: with `token-mean` and with every `seq-mean` a turn counts by its length, so one long turn drowns
the short ones of its trajectory. `actor_rollout_ref.actor.policy_loss.loss_mode: ragen_turn_mean` is that objective
with every turn of a trajectory weighing the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from ragen_verl.config.schema import nearest
from ragen_verl.errors import RecipeError

if TYPE_CHECKING:
    import torch

TURN_MEAN = "ragen_turn_mean"

# the gradient of logp - logp_ref is the score of the policy's own sample, whose mean is zero: no pull to the reference
NO_PULL = ("kl", "k1")

NORMED = "seq-mean-token-sum-norm"

_ACTOR = "actor_rollout_ref.actor"


def turn_weights(response_mask: torch.Tensor) -> torch.Tensor:
    """Weights under which every turn of a row counts the same, whatever its length.

    A turn is a run of ones in the mask. With n tokens in K turns in a row, a token of a turn of m tokens weighs
    n / (K m): 1 on average over the row, so the share that a row has in the batch stays what the aggregation gives it.

    Args:
        response_mask: sampled tokens of each row, bool or 0 and 1, shape (rows, length).

    Returns:
        float32, shape (rows, length); 0 where the mask is 0.
    """
    mask = response_mask.bool()
    starts = mask.clone()
    starts[:, 1:] &= ~mask[:, :-1]
    turn = (starts.cumsum(dim=1) - 1).clamp(min=0)
    ones = mask.float()
    tokens_of_turn = ones.new_zeros(ones.shape).scatter_add_(1, turn, ones).gather(1, turn)
    tokens, turns = ones.sum(dim=1, keepdim=True), starts.sum(dim=1, keepdim=True)
    return ones * tokens / (turns * tokens_of_turn).clamp(min=1)


def turn_mean(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """verl's clipped objective with the turns of a row weighing the same: the policy loss `ragen_turn_mean`.

    The objective is linear in the advantage's size in all its branches (clip, clip-higher, dual clip), so weighing
    tokens is scaling advantages. `loss_agg_mode` still says how rows weigh against each other: with
    `seq-mean-token-mean` the loss is the mean over rows of the mean over turns of the mean over tokens. Each row's
    weights depend on that row alone, hence nothing depends on micro-batches or ranks. Entropy and KL terms are verl's
    and follow `loss_agg_mode` alone.

    Args:
        old_log_prob: log-probabilities under the policy of the rollout, shape (rows, length).
        log_prob: under the policy in training, same shape.
        advantages: same shape.
        response_mask: sampled tokens, same shape.
        loss_agg_mode: one of verl's.
        config: verl's ActorConfig.
        rollout_is_weights: verl's importance weights between engine and trainer, same shape, or None.

    Returns:
        The loss and verl's metrics of its `vanilla` loss.
    """
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla

    return compute_policy_loss_vanilla(
        old_log_prob=old_log_prob,
        log_prob=log_prob,
        advantages=advantages * turn_weights(response_mask),
        response_mask=response_mask,
        loss_agg_mode=loss_agg_mode,
        config=config,
        rollout_is_weights=rollout_is_weights,
    )


# name in a recipe -> verl's kind of policy loss
POLICY_LOSSES = {TURN_MEAN: turn_mean}


def check_losses(config: DictConfig) -> None:
    """Refuse loss settings that verl would run without an effect, or with another one than their name says.

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
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    mode = config.actor_rollout_ref.actor.policy_loss.loss_mode
    known = {*POLICY_LOSS_REGISTRY, *POLICY_LOSSES}
    if mode not in known:
        raise RecipeError(f"{_ACTOR}.policy_loss.loss_mode {mode} is not a policy loss: {nearest(mode, known)}")
    if mode == TURN_MEAN and config.algorithm.rollout_correction.rollout_rs is not None:
        raise RecipeError(
            f"{_ACTOR}.policy_loss.loss_mode {TURN_MEAN} reads turns off the response mask but "
            "algorithm.rollout_correction.rollout_rs takes tokens out of it: set rollout_rs to null, or the loss mode "
            "to vanilla."
        )


def _check_clipping(actor: DictConfig) -> None:
    if actor.clip_ratio not in (None, actor.clip_ratio_low):
        raise RecipeError(
            f"{_ACTOR}.clip_ratio is {actor.clip_ratio} but verl clips at clip_ratio_low, {actor.clip_ratio_low}, and "
            f"clip_ratio_high, {actor.clip_ratio_high}: set those, and clip_ratio to the same as clip_ratio_low."
        )
    bound = actor.clip_ratio_c
    if not isinstance(bound, int | float) or bound <= 1:
        raise RecipeError(
            f"{_ACTOR}.clip_ratio_c is {bound!r} but has to be above 1: it bounds the ratio where the advantage is "
            "negative."
        )


def _check_kl(config: DictConfig) -> None:
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    if actor.use_kl_loss:
        _check_coefficient(f"{_ACTOR}.use_kl_loss", f"{_ACTOR}.kl_loss_coef", actor.kl_loss_coef)
        if actor.kl_loss_type in NO_PULL:
            raise RecipeError(
                f"{_ACTOR}.kl_loss_type {actor.kl_loss_type} has a gradient of zero mean, so it would not hold the "
                f"policy near the reference: use low_var_kl, k2 or {actor.kl_loss_type}+."
            )
        _check_not_full(f"{_ACTOR}.kl_loss_type", actor.kl_loss_type)
    if algorithm.use_kl_in_reward:
        control = algorithm.kl_ctrl
        _check_coefficient("algorithm.use_kl_in_reward", "algorithm.kl_ctrl.kl_coef", control.kl_coef)
        _check_not_full("algorithm.kl_penalty", algorithm.kl_penalty)
        if control.type not in ("fixed", "adaptive"):
            raise RecipeError(f"algorithm.kl_ctrl.type is {control.type!r} but verl knows fixed and adaptive.")


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
    """verl's engines clip at `optim.clip_grad`; `grad_clip` beside it is a key of their predecessors."""
    given = block.get("grad_clip", 1.0)
    if given not in (1.0, block.optim.clip_grad):
        raise RecipeError(
            f"{path}.grad_clip is {given!r} but verl's engines clip the gradient's norm at {path}.optim.clip_grad, "
            f"{block.optim.clip_grad}: set that one."
        )


def _check_aggregation(path: str, block: DictConfig) -> None:
    mode, factor = block.loss_agg_mode, block.loss_scale_factor
    if mode == NORMED:
        if not isinstance(factor, int | float) or factor <= 0:
            raise RecipeError(
                f"{path}.loss_scale_factor is {factor!r} with {path}.loss_agg_mode {mode}: verl would divide by the "
                "longest response of each micro-batch, which is no constant; set it, to data.max_response_length for "
                "example."
            )
    elif factor is not None and path == _ACTOR:  # the critic's follows the actor's, whatever its own mode
        raise RecipeError(
            f"{path}.loss_scale_factor is {factor!r} but only {path}.loss_agg_mode {NORMED} divides by it, not {mode}: "
            "set it to null, or the mode to that one."
        )


def _check_correction(correction: DictConfig) -> None:
    """verl's synchronous trainer corrects in its decoupled mode alone and hands the block to no loss."""
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
