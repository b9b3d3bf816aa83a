"""Log-probabilities and entropy in chunks against verl's own functions, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
import verl.utils.torch_functional as verl_functional
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_verl.patches import logits as own

VERLS = {
    name: getattr(verl_functional, name).__wrapped__  # fails if the patch was not applied
    for name in ("logprobs_from_logits_v2", "entropy_from_logits_with_chunking")
}
TYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


def both(found: Callable, logits: torch.Tensor, *rest: object, autocast: bool = False) -> list[torch.Tensor]:
    """A function's result and its gradient by the logits, for weights that differ from row to row."""
    leaf = logits.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        result = found(leaf, *rest)
    weights = torch.linspace(-1, 2, result.numel()).reshape(result.shape).to(result.dtype)
    (gradient,) = torch.autograd.grad(result, leaf, weights)
    return [result.detach(), gradient]


def drawn(rows: tuple[int, ...], words: int, kind: torch.dtype, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*rows, words, generator=generator) * 8
    return logits.to(kind), torch.randint(0, words, rows, generator=generator)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.integers(1, 9), min_size=1, max_size=2),
    words=st.integers(1, 700),
    kind=TYPES,
    chunk=st.integers(1, 20),
    seed=st.integers(0, 99),
    autocast=st.booleans(),
)
def test_log_probs_and_gradients_are_verls_bit_by_bit(rows, words, kind, chunk, seed, autocast) -> None:
    logits, labels = drawn(tuple(rows), words, kind, seed)
    theirs = both(VERLS["logprobs_from_logits_v2"], logits, labels, autocast=autocast)
    for ours, expected in zip(both(own.log_probs, logits, labels, chunk, autocast=autocast), theirs, strict=True):
        assert ours.dtype == expected.dtype and torch.equal(ours, expected)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 40), words=st.integers(1, 700), kind=TYPES, chunk=st.integers(1, 20), seed=st.integers(0, 99)
)
def test_entropies_and_gradients_are_verls_bit_by_bit(rows, words, kind, chunk, seed) -> None:
    logits, _ = drawn((rows,), words, kind, seed)
    theirs = both(VERLS["entropy_from_logits_with_chunking"], logits, chunk)
    for ours, expected in zip(both(own.entropies, logits, chunk), theirs, strict=True):
        assert ours.dtype == expected.dtype and torch.equal(ours, expected)


@pytest.mark.parametrize("words", [641, 2048])
def test_rows_of_several_lengths_give_the_same_as_each_row_alone(words: int) -> None:
    """verl gives it the tokens of all rows after one another; a chunk may end in the middle of a row."""
    lengths = [3, 61, 1, 17, 40]
    logits, labels = drawn((sum(lengths),), words, torch.float32, 1)
    together = own.log_probs(logits, labels, 16)
    alone = [
        torch.log_softmax(a.double(), -1).gather(-1, b[:, None]).squeeze(-1)
        for a, b in zip(logits.split(lengths), labels.split(lengths), strict=True)
    ]
    assert torch.allclose(together.double(), torch.cat(alone), atol=1e-5)


def test_a_gradient_that_is_not_needed_is_not_computed() -> None:
    logits, labels = drawn((10,), 30, torch.float32, 0)
    assert not own.log_probs(logits, labels).requires_grad
    assert own.log_probs(logits.requires_grad_(), labels).requires_grad


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_only_logits_and_labels_are_kept_for_the_backward_pass(kind: torch.dtype) -> None:
    logits, labels = drawn((64,), 500, kind, 0)

    def kept(found: Callable, *rest: object) -> int:
        storages: dict[int, int] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            result = found(logits.clone().requires_grad_(), *rest)  # alive, so that no address is used twice
        return sum(storages.values()) + 0 * result.numel()

    assert kept(own.log_probs, labels, 16) <= logits.nbytes + labels.nbytes
    assert kept(own.entropies, 16) <= logits.nbytes
    assert kept(VERLS["entropy_from_logits_with_chunking"], 16) > 2 * logits.nbytes


def test_verl_uses_it() -> None:
    logits, labels = drawn((5,), 30, torch.float32, 0)
    logits.requires_grad_()
    found = verl_functional.logprobs_from_logits(logits, labels)
    assert "_InChunks" in type(found.grad_fn.next_functions[0][0]).__name__ + type(found.grad_fn).__name__
