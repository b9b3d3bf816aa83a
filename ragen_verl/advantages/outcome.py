"""Estimators over the return of a whole trajectory: R, the sum of the rewards on its sampled tokens, undiscounted.

Means and standard deviations are over trajectories, each counted once however many rows it has. A trajectory that
failed was dropped before; its group consists of the others. `returns` is the same as in verl's functions: the
advantage, except for `reinforce_plus_plus`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.advantages.moments import centred, whitened
from ragen_verl.advantages.registry import estimator
from ragen_verl.advantages.scan import over_trajectories
from ragen_verl.values import Unit

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["dr_grpo", "grpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "rloo"]


@estimator("grpo", needs_group=True)
def grpo(batch: AdvantageBatch, *, norm_adv_by_std_in_grpo: bool = True) -> tuple[Tensor, Tensor]:
    """A = (R - mean) / (std + 1e-6) of the group, on every sampled token (arXiv 2402.03300, section 4.1.2).

    0 for a group of one and for a group with equal returns. verl gives a group of one its raw return.

    Args:
        norm_adv_by_std_in_grpo: divide by the group's sample standard deviation.
    """
    rollouts = batch.rollouts
    returns = rollouts.total(batch.rewards)
    one = rollouts.to_tokens(centred(returns, rollouts.group, rollouts.groups, by_std=norm_adv_by_std_in_grpo))
    return one, one


@estimator("dr_grpo", needs_group=True, implies={"norm_adv_by_std_in_grpo": False})
def dr_grpo(batch: AdvantageBatch) -> tuple[Tensor, Tensor]:
    """A = R - mean of the group, on every sampled token; 0 for a group of one (Dr. GRPO, arXiv 2503.20783, 3.2)."""
    return grpo(batch, norm_adv_by_std_in_grpo=False)


@estimator("rloo", needs_group=True)
def rloo(batch: AdvantageBatch) -> tuple[Tensor, Tensor]:
    """A = R - mean of the group's other trajectories = n / (n - 1) * (R - mean), on every sampled token.

    0 for a group of one; arXiv 2402.14740.
    """
    rollouts = batch.rollouts
    returns = rollouts.total(batch.rewards)
    count = rollouts.group.bincount(minlength=rollouts.groups)[rollouts.group]
    off = centred(returns, rollouts.group, rollouts.groups, by_std=False)
    one = rollouts.to_tokens(off * count / (count - 1).clamp(min=1))
    return one, one


@estimator("reinforce_plus_plus")
def reinforce_plus_plus(batch: AdvantageBatch, *, gamma: Unit = 1.0) -> tuple[Tensor, Tensor]:
    """G_t = r_t + gamma * G_(t+1) over the trajectory's sampled tokens, whitened over the batch (arXiv 2501.03262).

    Returns:
        Whitened G_t, and G_t itself.
    """
    # in double precision: whitening divides by the standard deviation, which can be tiny
    returns = over_trajectories(batch.stream(batch.rewards).double(), batch.turns, gamma)
    return batch.field(whitened(returns)), batch.field(returns)


@estimator("reinforce_plus_plus_baseline", needs_group=True)
def reinforce_plus_plus_baseline(batch: AdvantageBatch) -> tuple[Tensor, Tensor]:
    """R - mean of the group on every sampled token, whitened over the sampled tokens of the batch (arXiv 2501.03262).

    A group of one enters the whitening with 0.
    """
    rollouts = batch.rollouts
    returns = rollouts.total(batch.rewards)
    off = rollouts.to_tokens(centred(returns, rollouts.group, rollouts.groups, by_std=False))
    one = batch.field(whitened(batch.stream(off)))
    return one, one
