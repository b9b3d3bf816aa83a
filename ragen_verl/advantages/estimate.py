"""`estimate`: one call for every estimator of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ragen_verl.advantages._torch import torch
from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.advantages.registry import ESTIMATORS, WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["estimate"]


def estimate(name: str, batch: AdvantageBatch, options: Mapping[str, Any] | None = None) -> tuple[Tensor, Tensor]:
    """Advantages of every sampled token.

    Args:
        name: a name in `ESTIMATORS`.
        batch: the rows of one update.
        options: values that replace the defaults of the estimator's signature, and `weight`: `none`; `length`, which
            divides a trajectory's advantage by the ratio of its sampled tokens to their mean in the batch (RAGEN's
            `grpo_advantage_length_weight`); or `turns`, the same with its number of turns.

    Returns:
        advantages and returns (the critic's target where there is a critic), (rows, T) float32, 0 outside the mask.

    Raises:
        KeyError: no such estimator.
        ValueError: an option that the estimator does not read, a batch without what it needs, or an estimator that
            returns anything other than two finite (rows, T) tensors.
    """
    estimator = ESTIMATORS[name]
    options = dict(options or {})
    weight = options.pop("weight", "none")
    if weight not in WEIGHTS:
        raise ValueError(f"weight is {weight!r} but has to be one of {', '.join(WEIGHTS)}")
    if unknown := set(options) - set(estimator.options):
        raise ValueError(f"{name} does not read {', '.join(sorted(unknown))}")
    with torch.no_grad():
        advantages, returns = (_on_sampled(name, one, batch) for one in estimator.function(batch, **options))
        if weight != "none":
            advantages = advantages * batch.rollouts.per_row(_weights(batch, weight))
    return advantages, returns


def _on_sampled(name: str, found: Tensor, batch: AdvantageBatch) -> Tensor:
    """Check a tensor that an estimator returned, and give it as (rows, T) float32 with 0 outside the mask."""
    if found.shape != batch.mask.shape or not torch.isfinite(found[batch.sampled]).all():
        raise ValueError(f"{name} returned something else than one finite number for each sampled token")
    return torch.where(batch.sampled, found, 0).float()


def _weights(batch: AdvantageBatch, weight: str) -> Tensor:
    """Mean size / size of each trajectory, (trajectories,) float64; each trajectory counts once in the mean."""
    turns = batch.turns
    amounts = turns.length if weight == "length" else torch.ones_like(turns.length)
    sizes = torch.zeros(turns.shape[0], dtype=torch.int64, device=amounts.device)
    sizes = sizes.index_add_(0, turns.trajectory, amounts).double()
    return sizes.mean() / sizes
