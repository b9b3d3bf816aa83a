"""Discounted sums from the back: y_t = x_t + c * y_(t+1), for all trajectories or turns of a batch at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragen_verl.advantages._torch import torch
from ragen_verl.advantages.batch import Turns

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["following", "inside_turns", "over_trajectories", "over_turns"]


def over_trajectories(stream: Tensor, turns: Turns, factor: float) -> Tensor:
    """y_t = x_t + factor * y_(t+1) along the sampled tokens of each trajectory, across observations and rows.

    Args:
        stream: x on the sampled tokens, (tokens,) float32 or float64.
        turns: the turns of the tokens.
        factor: c, from 0 to 1.

    Returns:
        y, (tokens,), of the same type.
    """
    return _scan(stream, turns, factor, stop_at_turns=False)


def inside_turns(stream: Tensor, turns: Turns, factor: float) -> Tensor:
    """The same sum inside each turn alone: it starts again at the last token of every turn."""
    return _scan(stream, turns, factor, stop_at_turns=True)


def over_turns(table: Tensor, factor: float) -> Tensor:
    """The same sum along the second dimension of a (trajectories, turns) table."""
    table = table.clone()
    for k in range(table.shape[1] - 2, -1, -1):
        table[:, k] += factor * table[:, k + 1]
    return table


def following(stream: Tensor, turns: Turns) -> Tensor:
    """x_(t+1) of every sampled token: the next one of its trajectory, 0 after the last; (tokens,)."""
    if not len(stream):
        return stream
    shifted = stream.roll(-1)
    first_of_next = stream[turns.start][turns.following]
    shifted[turns.last] = torch.where(turns.following >= 0, first_of_next, 0)
    return shifted


def _scan(stream: Tensor, turns: Turns, factor: float, *, stop_at_turns: bool) -> Tensor:
    """The sum in a (trajectories, tokens) layout without observations, every trajectory's last token in column 0.

    The loop runs over the columns, which are made contiguous for it: one operation per token of the longest trajectory.
    """
    if factor == 0 or not len(stream):
        return stream.clone()
    trajectories, longest = turns.shape[0], int((turns.after + turns.length).max())
    column = turns.after + turns.length - 1  # of each turn's first token; the last one is at `after`
    slot = turns.to_tokens(turns.trajectory * longest + column + turns.start)
    slot -= torch.arange(len(stream), device=stream.device)
    layout = torch.zeros(trajectories * longest, dtype=stream.dtype, device=stream.device)
    layout = layout.index_copy_(0, slot, stream).view(trajectories, longest).t().contiguous()
    columns = layout.unbind(0)
    if stop_at_turns:
        factors = torch.full_like(layout, factor)
        factors[turns.after, turns.trajectory] = 0
        for t, factor_t in enumerate(factors[1:].unbind(0), start=1):
            columns[t].addcmul_(factor_t, columns[t - 1])
    else:
        for t in range(1, longest):
            columns[t].add_(columns[t - 1], alpha=factor)
    return layout.t().reshape(-1).index_select(0, slot)
