"""Means and standard deviations of groups, and whitening; each trajectory or token counts exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragen_verl.advantages._torch import torch
from ragen_verl.filter.scores import ZERO_STD

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["centred", "whitened"]

_EPSILON = 1e-6
"""Added to a group's standard deviation in GRPO's division (as in RAGEN and verl)."""

_WHITEN_EPSILON = 1e-8
"""Added to the variance when whitening (as in verl)."""


def _group_mean(values: Tensor, index: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Mean of each group, and the number of its values.

    Args:
        values: (n,) or (n, k) float64.
        index: (n,) int64, the group of each.
        groups: number of groups.

    Returns:
        (groups,) or (groups, k) means and (groups,) or (groups, 1) counts.
    """
    counts = torch.bincount(index, minlength=groups).reshape(-1, *[1] * (values.dim() - 1))
    sums = torch.zeros(groups, *values.shape[1:], dtype=values.dtype, device=values.device)
    return sums.index_add_(0, index, values) / counts.clamp(min=1), counts


def centred(values: Tensor, index: Tensor, groups: int, *, by_std: bool) -> Tensor:
    """x - mean of its group, divided by the group's sample standard deviation + EPSILON where `by_std`.

    A group of one has nothing to compare with and gives 0. With `by_std`, a group whose standard deviation is at most
    ZERO_STD gives 0 too: its differences are rounding. No result is larger than (n - 1) / sqrt(n) for a group of n.

    Args:
        values: (n,) or (n, k) float64; each column is normalised on its own.
        index: (n,) int64, the group of each.
        groups: number of groups.
    """
    mean, counts = _group_mean(values, index, groups)
    off = values - mean[index]
    if by_std:
        variance = _group_mean(off**2, index, groups)[0] * counts / (counts - 1).clamp(min=1)
        std = variance.sqrt()[index]
        off = torch.where(std > ZERO_STD, off / (std + _EPSILON), 0)
    return torch.where(counts[index] > 1, off, 0)


def whitened(stream: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + 1e-8) over all sampled tokens of the batch, sample variance; 0 for a single one.

    Args:
        stream: (tokens,) float32 or float64.
    """
    if len(stream) < 2:
        return torch.zeros_like(stream)
    mean = stream.mean(dtype=torch.float64)
    off = stream - mean.to(stream.dtype)
    variance = off.square().sum(dtype=torch.float64) / (len(stream) - 1)
    return off * (variance + _WHITEN_EPSILON).rsqrt().to(stream.dtype)
