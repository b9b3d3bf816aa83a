"""Policy losses that verl does not have, and the decorator that adds one.

verl has the objective (clip range, dual clip, entropy, KL) and five ways to average it over tokens and rows. None of
them knows turns: with `token-mean` and with every `seq-mean` the weight of a turn is its length, so one long turn
dominates the short ones of its trajectory. `actor_rollout_ref.actor.policy_loss.loss_mode: ragen_turn_mean` is verl's
objective with equal weights for the turns of a trajectory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragen_verl.errors import RecipeError
from ragen_verl.extensions import Registry
from ragen_verl.hooks import after_import

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["GIVEN", "POLICY_LOSSES", "TURN_MEAN", "PolicyLoss", "policy_loss", "turn_mean", "turn_weights"]

TURN_MEAN = "ragen_turn_mean"

GIVEN = (
    "old_log_prob",
    "log_prob",
    "advantages",
    "response_mask",
    "loss_agg_mode",
    "config",
    "rollout_is_weights",
)
"""The arguments, all by keyword, with which verl calls a policy loss (workers/utils/losses.py:103-112)."""


@dataclass(frozen=True)
class PolicyLoss:
    """A policy loss of this package or of a plugin.

    Attributes:
        function: verl calls it with `GIVEN`; see `turn_mean` for their shapes.
        needs_turns: whether it finds turns in the response mask.
    """

    function: Callable
    needs_turns: bool = False


POLICY_LOSSES: Registry[PolicyLoss] = Registry("policy loss")


def policy_loss(name: str, *, needs_turns: bool = False) -> Callable[[Callable], Callable]:
    """Decorator: register a function as the policy loss `name` of `actor_rollout_ref.actor.policy_loss.loss_mode`.

    It is registered with verl in this process, as soon as verl has its registry. The arguments are verl's (`GIVEN`);
    a loss reads its settings from `config`, verl's ActorConfig.

    Args:
        name: as in recipes; it must not be one of verl's own.
        needs_turns: whether it finds turns in the response mask, which rejected tokens and a loss on environment
            tokens would hide.

    Raises:
        RecipeError: the name is taken, or verl could not call the function.
    """

    def decorate(function: Callable) -> Callable:
        try:
            inspect.signature(function).bind(**dict.fromkeys(GIVEN))
        except TypeError as error:
            raise RecipeError(
                f"The policy loss {name!r} cannot be called as verl does it, with {', '.join(GIVEN)}: {error}."
            ) from None
        POLICY_LOSSES.add(name, PolicyLoss(function, needs_turns))
        # a name of verl's own is not replaced; the check of the recipe refuses it
        after_import(
            "verl.trainer.ppo.core_algos", lambda module: module.POLICY_LOSS_REGISTRY.setdefault(name, function)
        )
        return function

    return decorate


def turn_weights(response_mask: torch.Tensor, ends: Sequence[Sequence[int]] | None = None) -> torch.Tensor:
    """Weights with which every turn of a row counts the same, independently of its length.

    If a row has n tokens in K turns, a token in a turn of m tokens has the weight n / (K m). The mean over the row is
    1, so the row's share in the batch does not change. Only tokens of the mask are counted.

    Args:
        response_mask: tokens with a loss, bool or 0 and 1, shape (rows, length).
        ends: for each row the columns in which its turns end; None: a turn is an unbroken run of ones in the mask.

    Returns:
        float32, shape (rows, length); 0 where the mask is 0.
    """
    from ragen_verl.advantages.batch import turn_numbers

    mask = response_mask.bool()
    turn = turn_numbers(mask, ends)
    ones = mask.float()
    sizes = ones.new_zeros(ones.shape).scatter_add_(1, turn, ones)
    tokens, turns = ones.sum(dim=1, keepdim=True), (sizes > 0).sum(dim=1, keepdim=True)
    return ones * tokens / (turns * sizes.gather(1, turn)).clamp(min=1)


@policy_loss(TURN_MEAN)
def turn_mean(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """verl's clipped objective with equal weights for the turns of a row: the policy loss `ragen_turn_mean`.

    verl's workers run this function under stock verl's trainers. verl's `ppo_loss` passes to a policy loss only the
    tensors below (workers/utils/losses.py), so turns have to be runs of the mask here. This package's trainer knows
    where turns end: it scales the advantages itself, and the workers run `vanilla`.

    The objective is linear in the advantage's size in all its branches (clip, clip-higher, dual clip), so weights of
    tokens are factors of advantages. `loss_agg_mode` still determines the weights of rows: with `seq-mean-token-mean`
    the loss is the mean over rows of the mean over turns of the mean over tokens. Each row's weights depend on that row
    alone, so nothing depends on micro-batches or ranks. Entropy and KL terms are verl's and depend on `loss_agg_mode`
    alone.

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
