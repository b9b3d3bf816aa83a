"""Discounted sums from the back: y_t = x_t + c * y_(t+1), for all trajectories or turns of a batch at once."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from ragen_verl.advantages.batch import Turns


def over_trajectories(stream: Tensor, turns: Turns, factor: float) -> Tensor:
    """y_t = x_t + factor * y_(t+1) along the sampled tokens of each trajectory, observation tokens and rows skipped.

    Args:
        stream: x on the sampled tokens, (tokens,) float32.
        turns: where the tokens belong.
        factor: c, from 0 to 1.

    Returns:
        y, (tokens,) float32.
    """
    longest_first = _ranks(_lengths(turns))
    return _scan(stream, turns, turns.after, longest_first[turns.trajectory], factor)


def inside_turns(stream: Tensor, turns: Turns, factor: float) -> Tensor:
    """The same sum with every turn on its own: its last token starts afresh."""
    return _scan(stream, turns, torch.zeros_like(turns.after), _ranks(turns.length), factor)


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


def _lengths(turns: Turns) -> Tensor:
    """(trajectories,) int64: sampled tokens of each trajectory."""
    lengths = torch.zeros(turns.shape[0], dtype=torch.int64, device=turns.length.device)
    return lengths.index_add_(0, turns.trajectory, turns.length)


def _ranks(lengths: Tensor) -> Tensor:
    """Rank of each segment, the longest first."""
    order = torch.argsort(lengths, descending=True)
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))


def _scan(stream: Tensor, turns: Turns, after: Tensor, rank: Tensor, factor: float) -> Tensor:
    """The sum inside segments, tokens laid out by their distance to the segment's end and then by its rank.

    With the longest segment first, the segments that still have a token at distance d are the first ones, so each step
    of the loop is one sum over neighbouring numbers and no place is wasted on padding.

    Args:
        after: (turns,), tokens of the segment after the turn.
        rank: (turns,), rank of the segment by length.
    """
    if factor == 0 or not len(stream):
        return stream.clone()
    distance = turns.spread(after + turns.last) - torch.arange(len(stream), device=stream.device)
    sizes = torch.bincount(distance)
    slot = (sizes.cumsum(0) - sizes)[distance] + turns.spread(rank)
    packed = torch.empty_like(stream)
    packed[slot] = stream
    for later, now in pairwise(packed.split(sizes.tolist())):
        now.add_(later[: len(now)], alpha=factor)
    return packed[slot]
