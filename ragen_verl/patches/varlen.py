"""Attention over rows that are packed without padding, where flash-attention is missing: transformers' name "varlen".

transformers gives packed rows to sdpa with a mask of T x T elements. torch 2.11 and later has flash-attention's kernel
for rows of several lengths in itself (`torch.nn.attention.varlen`). The call alone decides what computes it:

- one packed batch on a CUDA device in bf16 or fp16: the kernel;
- one packed batch elsewhere, or in float32, which the kernel does not take: sdpa, row by row, without a mask;
- padded batches, sliding windows, answers from a cache: transformers' sdpa with its mask.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

__all__ = ["NAME", "apply", "attention", "rows"]

NAME = "varlen"


def apply(module: Any) -> None:
    """Add it to the attentions and masks of transformers (`transformers.modeling_utils`)."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask

    def mask(*, batch_size: int, attention_mask: torch.Tensor | None = None, **rest: Any) -> torch.Tensor | None:
        if batch_size == 1 and attention_mask is None and rest.get("local_size") is None and not rest.get("use_vmap"):
            return None
        return sdpa_mask(batch_size=batch_size, attention_mask=attention_mask, **rest)

    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, mask)
    module.ALL_ATTENTION_FUNCTIONS.register(NAME, attention)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    position_ids: torch.Tensor | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    tree: Any = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention, in the form that transformers calls.

    Args:
        module: the layer.
        query: (batch, heads, T, width of a head).
        key: the same with as many heads as keys and values have.
        value: as `key`.
        attention_mask: None where rows are packed.
        position_ids: (batch, T); each row counts from 0.
        scaling: of the scores; the width's inverse root if absent.
        sliding_window: of the layer.
        tree: `ragen_verl.patches.prefixes.Tree` if the packed rows are the tokens of one.
        rest: passed to sdpa.

    Returns:
        (batch, T, heads, width of a head), and no weights.
    """
    packed = attention_mask is None and sliding_window is None and position_ids is not None
    if not (packed and query.shape[0] == 1 and query.shape[2] == key.shape[2] == position_ids.shape[-1]):
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **rest)
    if tree is None:
        starts, size = rows(position_ids)
        begins, longest = (starts, starts), (size, size)
    else:
        tree.layers += 1
        key, value = (one[:, :, tree.seen] for one in (key, value))
        begins, longest = tree.begins, tree.longest
    flat = (query.to(value.dtype), key.to(value.dtype), value)
    q, k, v = (one[0].transpose(0, 1) for one in flat)  # (T, heads, width)
    on_card = query.is_cuda and value.dtype in (torch.bfloat16, torch.float16)
    found = (_kernel if on_card else _row_by_row)(q, k, v, begins, longest, scaling)
    return found.unsqueeze(0), None


def rows(position_ids: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Where packed rows begin, and T at the end (int32, rows + 1), and the tokens of the longest.

    It is computed once for all layers and kept on the tensor, since the length has to come from the device.
    """
    known = getattr(position_ids, "_ragen_rows", None)
    if known is None:
        places = position_ids.reshape(-1)
        begins = torch.cat([places.new_ones(1, dtype=torch.bool), places.diff() != 1]).nonzero().squeeze(-1)
        starts = torch.cat([begins, begins.new_tensor([len(places)])]).to(torch.int32)
        known = position_ids._ragen_rows = (starts, int(starts.diff().max()))
    return known


def _kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    begins: tuple[torch.Tensor, torch.Tensor],
    longest: tuple[int, int],
    scaling: float | None,
) -> torch.Tensor:
    """torch's kernel; (T, heads, width) each. The last query of a row is that of its last key."""
    from torch.nn.attention.varlen import varlen_attn

    own: dict[str, Any] = {"scale": scaling, "window_size": (-1, 0)}
    if key.shape[1] != query.shape[1]:
        if _knows_groups():
            own["enable_gqa"] = True
        else:  # torch 2.11
            key, value = (one.repeat_interleave(query.shape[1] // one.shape[1], dim=1) for one in (key, value))
    query, key, value = (one.contiguous() for one in (query, key, value))
    return varlen_attn(query, key, value, *begins, *longest, **own)


@cache
def _knows_groups() -> bool:
    from torch.nn.attention.varlen import varlen_attn

    return "enable_gqa" in inspect.signature(varlen_attn).parameters


def _row_by_row(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    begins: tuple[torch.Tensor, torch.Tensor],
    longest: tuple[int, int],
    scaling: float | None,
) -> torch.Tensor:
    """The same with sdpa for one row after the other, for any device and type."""
    asking, asked = (one.diff().tolist() for one in begins)
    shared = query.shape[1] // key.shape[1]
    parts = []
    for q, k, v in zip(query.split(asking), key.split(asked), value.split(asked), strict=True):
        whole, mask = len(q) == len(k), None
        if not whole:
            mask = torch.ones(len(q), len(k), dtype=torch.bool, device=q.device).tril(len(k) - len(q))
        q, k, v = (one.transpose(0, 1).unsqueeze(0) for one in (q, k, v))
        k, v = (one.repeat_interleave(shared, dim=1) for one in (k, v))
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=whole, scale=scaling)
        parts.append(found[0].transpose(0, 1))
    return torch.cat(parts)
