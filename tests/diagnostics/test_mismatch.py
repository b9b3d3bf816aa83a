"""Distance between the trainer's and the engine's log-probabilities."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_verl.config.diagnostics import Mismatch
from ragen_verl.diagnostics.mismatch import token_mismatch
from ragen_verl.training.batch_mismatch import mismatch_of_rows


def batch(seed: int, rows: int = 4, length: int = 12) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    engine = -torch.rand(rows, length, generator=generator) * 5
    mask = (torch.rand(rows, length, generator=generator) < 0.6).long()
    mask[0, 0] = 1
    return engine + torch.randn(rows, length, generator=generator), engine, mask


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 3.0))
def test_mismatch_is_what_its_words_say(seed: int, threshold: float) -> None:
    ours, engine, mask = batch(seed)
    pairs = zip(ours.flatten().tolist(), engine.flatten().tolist(), mask.flatten().tolist(), strict=True)
    distances = [abs(a - b) for a, b, sampled in pairs if sampled]
    assert token_mismatch(ours, engine, mask, threshold) == pytest.approx(
        {
            "mismatch/mean": sum(distances) / len(distances),
            "mismatch/max": max(distances),
            "mismatch/share": sum(one > threshold for one in distances) / len(distances),
            "mismatch/tokens": len(distances),
        }
    )


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e3, math.nan, math.inf]))
def test_what_was_not_sampled_is_never_read(seed: int, junk: float) -> None:
    ours, engine, mask = batch(seed)
    before = token_mismatch(ours, engine, mask)
    ours[mask == 0] = junk
    assert token_mismatch(ours, engine, mask) == before


def test_equal_log_probs_have_no_mismatch() -> None:
    _, engine, mask = batch(0)
    found = token_mismatch(engine, engine.clone(), mask)
    assert found["mismatch/mean"] == found["mismatch/max"] == found["mismatch/share"] == 0.0


def test_no_sampled_token_gives_no_distance() -> None:
    ours, engine, mask = batch(1)
    assert token_mismatch(ours, engine, torch.zeros_like(mask)) == {"mismatch/tokens": 0.0}


def test_a_distance_that_is_not_finite_is_beyond_any_threshold() -> None:
    engine = torch.zeros(1, 4)
    ours = torch.tensor([[0.0, -math.inf, math.nan, 0.25]])
    found = token_mismatch(ours, engine, torch.ones(1, 4))
    assert found == {"mismatch/tokens": 4.0, "mismatch/share": 0.5, "mismatch/mean": 0.125, "mismatch/max": 0.25}
    assert token_mismatch(ours[:, 1:3], engine[:, 1:3], torch.ones(1, 2)) == {
        "mismatch/tokens": 2.0,
        "mismatch/share": 1.0,
    }


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="not one batch"):
        token_mismatch(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 4))


def test_when_it_is_measured() -> None:
    assert all(Mismatch().due(step, bypass_mode=False) for step in range(1, 30))
    assert [step for step in range(1, 30) if Mismatch(bypass_freq=10).due(step, True)] == [1, 11, 21]
    assert not any(Mismatch(bypass_freq=None).due(step, True) for step in range(1, 30))


@pytest.mark.parametrize("whole", [False, True])
def test_rows_of_the_data_plane_give_what_the_padded_batch_gives(whole: bool) -> None:
    ours, engine, mask = batch(3, rows=3)
    lengths, prompts = [12, 5, 8], [4, 1, 6]
    rows = [ours[i, :n] for i, n in enumerate(lengths)]
    if whole:  # the model's output: prompt first, one position early, and one for the token after the last
        rows = [
            torch.cat([torch.full((p - 1,), -9.0), row, torch.tensor([-7.0])])
            for p, row in zip(prompts, rows, strict=True)
        ]
    data = {
        "log_probs" if whole else "old_log_probs": rows,
        "rollout_log_probs": [engine[i, :n] for i, n in enumerate(lengths)],
        "response_mask": [mask[i, :n] for i, n in enumerate(lengths)],
    }
    for i, n in enumerate(lengths):
        mask[i, n:] = 0
    assert mismatch_of_rows(data, 0.7) == pytest.approx(token_mismatch(ours, engine, mask, 0.7))
