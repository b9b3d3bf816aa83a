"""Attention over packed rows against each row alone. torch's kernel needs a GPU: here its fake, which gives shapes."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
import torch
import verl  # noqa: F401  verl loads the plugin, which registers the attention
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, Qwen2Config

from ragen_verl.patches import varlen

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=5)


def places(lengths: list[int]) -> torch.Tensor:
    return torch.cat([torch.arange(one) for one in lengths])[None]


def packed(lengths: list[int], heads: int, shared: int, width: int = 8) -> list[torch.Tensor]:
    """Query, key and value as transformers gives them, (1, heads, T, width)."""
    torch.manual_seed(sum(lengths))
    total = sum(lengths)
    return [
        torch.randn(1, count, total, width, requires_grad=True) for count in (heads, heads // shared, heads // shared)
    ]


def slow(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: list[int], scaling: float
) -> torch.Tensor:
    """Every token by itself: softmax over the tokens of its row up to it; (1, T, heads, width)."""
    found, start = [], 0
    shared = query.shape[1] // key.shape[1]
    for length in lengths:
        for token in range(start, start + length):
            row = []
            for head in range(query.shape[1]):
                own = key[0, head // shared, start : token + 1], value[0, head // shared, start : token + 1]
                row.append((own[0] @ query[0, head, token] * scaling).softmax(0) @ own[1])
            found.append(torch.stack(row))
        start += length
    return torch.stack(found)[None]


@settings(deadline=None, max_examples=25)
@given(lengths=LENGTHS, shared=st.sampled_from([1, 2, 4]))
def test_a_token_sees_its_own_row_up_to_itself(lengths: list[int], shared: int) -> None:
    tensors, scaling = packed(lengths, 4, shared), 0.3
    found, weights = varlen.attention(
        torch.nn.Module(), *tensors, None, position_ids=places(lengths), scaling=scaling, dropout=0.0
    )
    expected = slow(*tensors, lengths, scaling)
    assert weights is None and torch.allclose(found, expected, atol=1e-5)
    ours, theirs = (torch.autograd.grad(one.square().sum(), tensors) for one in (found, expected))
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, theirs, strict=True))


@settings(deadline=None, max_examples=50)
@given(lengths=LENGTHS)
def test_rows_begin_where_positions_do(lengths: list[int]) -> None:
    ids = places(lengths)
    starts, longest = varlen.rows(ids)
    assert starts.dtype == torch.int32 and longest == max(lengths)
    assert starts.tolist() == [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    assert varlen.rows(ids)[0] is starts  # the layers after the first do not ask the device again


@pytest.mark.parametrize("shared", [1, 7])
def test_the_kernel_takes_the_call(shared: int) -> None:
    """torch's own declaration of the kernel checks names and gives shapes, forward and backward, without a GPU."""
    query, key, value = (
        torch.empty(40, count, 64, dtype=torch.bfloat16, device="meta", requires_grad=True)
        for count in (14, 14 // shared, 14 // shared)
    )
    begins = tuple(torch.empty(4, dtype=torch.int32, device="meta") for _ in range(2))
    found = varlen._kernel(query, key, value, begins, (20, 20), 0.125)
    assert found.shape == (40, 14, 64) and found.dtype == torch.bfloat16 and found.grad_fn is not None


def model(attention: str) -> torch.nn.Module:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_model_gives_what_sdpa_gives_for_packed_rows(checkpointed: bool) -> None:
    lengths, ids = [5, 1, 9, 4], torch.arange(19)[None] * 7 % 50
    found = []
    for name in ("sdpa", varlen.NAME):
        one = model(name).train()
        if checkpointed:
            one.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        logits = one(input_ids=ids, position_ids=places(lengths), attention_mask=None, use_cache=False).logits
        logits.square().sum().backward()
        found.append((logits, one.model.layers[0].self_attn.q_proj.weight.grad))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_padded_rows_go_through_sdpa_with_their_mask() -> None:
    ids = torch.arange(12).reshape(2, 6)
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    found = [model(name)(input_ids=ids, attention_mask=mask).logits[mask.bool()] for name in ("sdpa", varlen.NAME)]
    assert torch.allclose(*found, atol=1e-5)
    answers = [
        model(name).generate(ids[:1], max_new_tokens=5, do_sample=False, pad_token_id=0)
        for name in ("sdpa", varlen.NAME)
    ]
    assert torch.equal(*answers)


def test_the_shipped_model_takes_it_by_name() -> None:
    folder = Path(str(files("ragen_verl.cpu"))) / "nano_model"
    loaded = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=varlen.NAME)
    assert loaded.config._attn_implementation == varlen.NAME
