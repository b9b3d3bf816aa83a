"""Estimators that compare turns, without a critic: GiGPO and turn-level GRPO.

G_k = r_k + gamma * G_(k+1) is the discounted return from turn k on, r_k the sum of the turn's rewards. `returns` is the
advantage, as for all estimators that compare groups.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from ragen_verl.advantages._torch import torch
from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.advantages.moments import centred
from ragen_verl.advantages.registry import estimator
from ragen_verl.advantages.scan import over_turns
from ragen_verl.values import Unit

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["gigpo", "turn_grpo"]


@estimator("gigpo", needs_group=True, needs_turns=True, needs_states=True)
def gigpo(
    batch: AdvantageBatch,
    *,
    norm_adv_by_std_in_grpo: bool = True,
    step_weight: Annotated[float, Ge(0)] = 1.0,
    step_gamma: Unit = 0.95,
) -> tuple[Tensor, Tensor]:
    """A = A_episode + step_weight * A_step (arXiv 2505.10978, section 4).

    A_episode is `grpo`'s. A_step compares G_k, discounted by `step_gamma`, with all turns of the group that started in
    the same state (the anchor), in any trajectory and any number of times. A state met once gives 0. So where the
    trajectories of a group share only the first state, later turns have the advantage of `grpo`.

    Args:
        norm_adv_by_std_in_grpo: divide by the sample standard deviation, at both levels.
        step_weight: omega.
        step_gamma: discount per turn.

    Raises:
        ValueError: the batch has no states, or not one for each turn.
    """
    turns, rollouts = batch.turns, batch.rollouts
    rewards = turns.total(batch.stream(batch.rewards))
    episode = torch.zeros(len(rollouts), dtype=torch.float64, device=rewards.device)
    episode.index_add_(0, turns.trajectory, rewards)
    episode = centred(episode, rollouts.group, rollouts.groups, by_std=norm_adv_by_std_in_grpo)
    anchor, anchors = _anchors(batch)
    step = turns.entries(over_turns(turns.table(rewards), step_gamma))
    step = centred(step, anchor, anchors, by_std=norm_adv_by_std_in_grpo)
    one = batch.field(turns.to_tokens((episode[turns.trajectory] + step_weight * step).float()))
    return one, one


@estimator("turn_grpo", needs_group=True, needs_turns=True)
def turn_grpo(
    batch: AdvantageBatch,
    *,
    norm_adv_by_std_in_grpo: bool = True,
    turn_gamma: Unit = 1.0,
) -> tuple[Tensor, Tensor]:
    """A_k = (G_k - mean) / (std + 1e-6) over the group at turn k, on every token of the turn; 0 for a group of one.

    Mean and standard deviation are over all trajectories of the group: one that has ended before turn k enters with
    G_k = 0, since it collects nothing more. So every turn has as many terms as the group has trajectories. If the
    number depended on when trajectories stop, the baseline would be biased.

    Args:
        norm_adv_by_std_in_grpo: divide by the sample standard deviation.
        turn_gamma: discount per turn.
    """
    turns, rollouts = batch.turns, batch.rollouts
    rewards = turns.table(turns.total(batch.stream(batch.rewards)))
    returns = over_turns(rewards, turn_gamma)
    table = centred(returns, rollouts.group, rollouts.groups, by_std=norm_adv_by_std_in_grpo)
    one = batch.field(turns.to_tokens(turns.entries(table).float()))
    return one, one


def _anchors(batch: AdvantageBatch) -> tuple[Tensor, int]:
    """The number of each turn's anchor (the pair of its group and the state it started in); how many anchors exist."""
    turns = batch.turns
    if batch.states is None:
        raise ValueError("gigpo needs the state that each turn started in, and the batch has none")
    found = turns.row.bincount(minlength=len(batch.mask)).tolist()
    for row, count in enumerate(found):
        if count and len(batch.states[row]) != count:
            raise ValueError(f"row {row} has {count} turns but {len(batch.states[row])} states")
    groups = batch.rollouts.group[turns.trajectory].tolist()
    numbers: dict[tuple[int, Hashable], int] = {}
    index = [
        numbers.setdefault((group, batch.states[row][place]), len(numbers))
        for group, row, place in zip(groups, turns.row.tolist(), turns.place.tolist(), strict=True)
    ]
    return torch.tensor(index, dtype=torch.int64, device=turns.row.device), len(numbers)
