"""Generalised advantage estimation with a critic: over tokens, over turns, over both (arXiv 1506.02438, eq. 16).

All three whiten the advantage over the sampled tokens of the batch, as verl does; `returns`, the critic's target, is
the advantage before whitening plus the value. Nothing is bootstrapped from an observation token: V of a token is the
critic's value before that token was sampled, and the token after a turn's last one is the next turn's first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragen_verl.advantages._torch import torch
from ragen_verl.advantages.batch import AdvantageBatch
from ragen_verl.advantages.moments import whitened
from ragen_verl.advantages.registry import estimator
from ragen_verl.advantages.scan import following, inside_turns, over_trajectories, over_turns
from ragen_verl.values import Unit

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Unit", "bi_level_gae", "gae", "turn_gae"]


@estimator("gae", needs_critic=True)
def gae(batch: AdvantageBatch, *, gamma: Unit = 1.0, lam: Unit = 1.0) -> tuple[Tensor, Tensor]:
    """Token-level GAE over the sampled tokens of each trajectory, in its rows' order.

    delta_t = r_t + gamma * V_(t+1) - V_t, A_t = delta_t + gamma * lam * A_(t+1), V = 0 after the last token.

    Returns:
        Whitened advantages and critic targets A_t + V_t, (rows, T) float32.
    """
    rewards, values = batch.stream(batch.rewards), _values(batch)
    delta = rewards + gamma * following(values, batch.turns) - values
    advantages = over_trajectories(delta, batch.turns, gamma * lam)
    return batch.field(whitened(advantages)), batch.field(advantages + values)


@estimator("turn_gae", needs_critic=True, needs_turns=True)
def turn_gae(batch: AdvantageBatch, *, turn_gamma: Unit = 1.0, turn_lam: Unit = 1.0) -> tuple[Tensor, Tensor]:
    """GAE with a whole turn as one action: V_k is the value before the turn's first sampled token.

    delta_k = r_k + turn_gamma * V_(k+1) - V_k, A_k = delta_k + turn_gamma * turn_lam * A_(k+1), with r_k the sum of the
    turn's rewards.

    Returns:
        Whitened A_k on every token of turn k, and the critic target A_k + V_k on every token of turn k, so that the
        value of a turn is learnt from all of its tokens. (rows, T) float32.
    """
    turns = batch.turns
    rewards = turns.table(turns.total(batch.stream(batch.rewards)))
    values = turns.table(_values(batch)[turns.start].double())
    advantages = _over_turns(rewards, values, turn_gamma, turn_lam)
    returns = turns.entries(advantages + values).float()
    stream = turns.to_tokens(turns.entries(advantages).float())
    return batch.field(whitened(stream)), batch.field(turns.to_tokens(returns))


@estimator("bi_level_gae", needs_critic=True, needs_turns=True)
def bi_level_gae(
    batch: AdvantageBatch,
    *,
    gamma: Unit = 1.0,
    lam: Unit = 1.0,
    turn_gamma: Unit = 0.95,
    turn_lam: Unit = 1.0,
    value_at_start: bool = False,
) -> tuple[Tensor, Tensor]:
    """Turn-level GAE at the last token of each turn, then token-level GAE inside the turn (RAGEN, VAGEN).

    Level 1, with V_k the value before turn k's last sampled token and r_k its reward:
    delta_k = r_k + turn_gamma * (I_(k+1) + V_(k+1)) - V_k, A_k = delta_k + turn_gamma * turn_lam * A_(k+1). I_(k+1) are
    the rewards on the next turn's other tokens. They are 0 unless there is a KL penalty, which RAGEN's formula loses.

    Level 2: the last token has A_k; before it delta_t = r_t + gamma * V_(t+1) - V_t and
    A_t = delta_t + gamma * lam * A_(t+1), which ends with the turn. With all four at 1 this is `gae`.

    Args:
        value_at_start: V_k is the value before the turn's first token, before the action is known (VAGEN's later
            code), and r_k the sum of the turn's rewards. The last token then has A_k + V_k - V_t less the rewards of
            the turn's other tokens, so that none counts twice. It differs where `turn_lam` is below 1.

    Returns:
        Whitened advantages and critic targets A_t + V_t, (rows, T) float32.
    """
    turns = batch.turns
    rewards, values = batch.stream(batch.rewards), _values(batch)
    total, last = turns.total(rewards), rewards[turns.last].double()
    inner = turns.table(total - last)
    ends = turns.table(values[turns.last].double())
    if value_at_start:
        starts = turns.table(values[turns.start].double())
        turn_level = _over_turns(turns.table(total), starts, turn_gamma, turn_lam) + starts - inner - ends
    else:
        # rewards before the next turn's last token belong to the step that leads to that token
        reached = torch.nn.functional.pad(inner[:, 1:], (0, 1))
        turn_level = _over_turns(turns.table(last) + turn_gamma * reached, ends, turn_gamma, turn_lam)
    delta = rewards + gamma * following(values, turns) - values
    delta[turns.last] = turns.entries(turn_level).float()
    advantages = inside_turns(delta, turns, gamma * lam)
    return batch.field(whitened(advantages)), batch.field(advantages + values)


def _over_turns(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    """GAE along (trajectories, turns) tables that are 0 after a trajectory's end."""
    after = torch.nn.functional.pad(values[:, 1:], (0, 1))
    return over_turns(rewards + gamma * after - values, gamma * lam)


def _values(batch: AdvantageBatch) -> Tensor:
    if batch.values is None:
        raise ValueError("this estimator needs the critic's values, and the batch has none")
    return batch.stream(batch.values)
