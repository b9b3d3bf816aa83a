"""Log-probabilities and entropy of a large vocabulary in chunks of rows, where flash-attention is missing.

verl 0.9.1 then computes log-probabilities token by token in Python and keeps a float32 row of the vocabulary for each
(utils/torch_functional.py:203-240): 14 + 15 operations a token, and 8.75 GB for 14,400 tokens of Qwen2.5. Its chunked
entropy keeps every chunk for the backward pass as well (line 289). Here a chunk is computed again in the backward pass,
whose gradient goes into one tensor. The arithmetic of a row is verl's, so results are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

__all__ = ["CHUNK", "apply", "entropies", "log_probs"]

CHUNK = 2048
"""Rows of a chunk: 1.2 GB in float32 with the vocabulary of Qwen2.5."""


def log_probs(logits: torch.Tensor, labels: torch.Tensor, chunk_size: int = CHUNK) -> torch.Tensor:
    """The log-probability of each row's label, bitwise as in verl's `logprobs_from_logits_v2`.

    Args:
        logits: (..., V), any floating type.
        labels: (...), int64.
        chunk_size: rows of a chunk.

    Returns:
        (...); in bf16 that of `log_softmax`, which is float32 under CUDA's autocast.
    """
    found = _InChunks.apply(_labelled, logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), chunk_size)
    return found.reshape(labels.shape)


def entropies(logits: torch.Tensor, chunk_size: int = CHUNK) -> torch.Tensor:
    """The entropy of each row in nats, float32, bitwise as in verl's `entropy_from_logits_with_chunking`.

    Args:
        logits: (T, V), any floating type.
        chunk_size: rows of a chunk.
    """
    return _InChunks.apply(_entropy, logits, None, chunk_size)


def _labelled(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    labels = labels.unsqueeze(-1)
    if logits.dtype in (torch.float32, torch.float64):
        return logits.gather(-1, labels).squeeze(-1) - logits.logsumexp(-1)
    return F.log_softmax(logits, dim=-1).gather(-1, labels).squeeze(-1)


def _entropy(logits: torch.Tensor, _: None) -> torch.Tensor:
    logits = logits.float()
    shares = logits.softmax(-1)  # first, as in verl: gradients are added in the reverse order
    return logits.logsumexp(-1) - (shares * logits).sum(-1)


class _InChunks(torch.autograd.Function):
    """A function of rows, by chunks of them; the backward pass computes each chunk a second time."""

    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[[torch.Tensor, Any], torch.Tensor],
        logits: torch.Tensor,
        labels: torch.Tensor | None,
        rows: int,
    ) -> torch.Tensor:
        ctx.save_for_backward(logits, labels)
        ctx.function, ctx.rows, device = function, rows, logits.device.type
        ctx.autocast = {
            "device_type": device,
            "dtype": torch.get_autocast_dtype(device),
            "enabled": torch.is_autocast_enabled(device),
        }
        return torch.cat([function(*chunk) for chunk in _chunks(logits, labels, rows)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor, None, None]:
        logits, labels = ctx.saved_tensors
        found = torch.empty_like(logits)
        for (chunk, own), up, into in zip(
            _chunks(logits, labels, ctx.rows), gradient.split(ctx.rows), found.split(ctx.rows), strict=True
        ):
            leaf = chunk.detach().requires_grad_()
            with torch.enable_grad(), torch.autocast(**ctx.autocast):
                result = ctx.function(leaf, own)
            into.copy_(torch.autograd.grad(result, leaf, up)[0])
        return None, found, None, None


def _chunks(logits: torch.Tensor, labels: torch.Tensor | None, rows: int) -> Any:
    parts = logits.split(rows)
    return zip(parts, [None] * len(parts) if labels is None else labels.split(rows), strict=True)


def apply(module: Any) -> None:
    """Replace the two functions of `verl.utils.torch_functional`."""
    for name, own in {"logprobs_from_logits_v2": log_probs, "entropy_from_logits_with_chunking": entropies}.items():
        # verl may compile what calls it, and a compiler would unroll the loop
        setattr(module, name, wraps(getattr(module, name))(torch.compiler.disable(own)))
