"""Gradient norms by the standard deviation of returns: buckets and metrics."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_verl.config.probes import GradientSignal
from ragen_verl.config.schema import parse
from ragen_verl.diagnostics.gradient_signal import ALL, split, summarize
from ragen_verl.errors import RecipeError

# a coarse grid, so that equal groups are common
STDS = st.lists(st.integers(0, 6).map(lambda tenths: tenths / 10), min_size=1, max_size=24)


def rows_of(count: int, size: int = 3) -> list[list[int]]:
    """Rows of each group, the groups' rows taking turns."""
    return [list(range(group, count * size, count)) for group in range(count)]


@settings(deadline=None, max_examples=200)
@given(STDS, st.integers(2, 8))
def test_buckets_divide_the_batch_by_std(stds, buckets):
    groups = rows_of(len(stds))
    whole, *parts = split(groups, stds, buckets)
    assert whole.name == ALL and list(whole.rows) == list(range(3 * len(stds)))
    assert sorted(whole.stds) == sorted(stds)
    if len(set(stds)) == 1:
        assert parts == []
    if parts:
        assert len(parts) >= 2 and len(parts) <= buckets
        assert sorted(row for part in parts for row in part.rows) == list(whole.rows)
        for low, high in pairwise(parts):
            assert max(low.stds) < min(high.stds)
            assert int(low.name.removeprefix("bucket_")) < int(high.name.removeprefix("bucket_"))
        for part in parts:
            assert {stds[row % len(stds)] for row in part.rows} == set(part.stds)


@settings(deadline=None, max_examples=100)
@given(STDS, st.integers(2, 8), st.integers(0, 99))
def test_the_order_of_groups_does_not_matter(stds, buckets, seed):
    groups = rows_of(len(stds))
    order = np.random.default_rng(seed).permutation(len(stds))
    shuffled = split([groups[k] for k in order], [stds[k] for k in order], buckets)
    assert [(b.name, b.rows, sorted(b.stds)) for b in shuffled] == [
        (b.name, b.rows, sorted(b.stds)) for b in split(groups, stds, buckets)
    ]


def test_different_stds_fill_equal_quantiles():
    parts = split(rows_of(12), [k / 10 for k in range(12)], 6)[1:]
    assert [part.name for part in parts] == [f"bucket_{k}" for k in range(1, 7)]
    assert [len(part.stds) for part in parts] == [2] * 6
    # groups that a common return has left equal stay together
    assert [len(part.stds) for part in split(rows_of(6), [0, 0, 0, 0, 1, 2], 3)[1:]] == [4, 2]


def test_nothing_to_measure():
    assert split([], [], 3) == []
    assert summarize([], [], {}) == {}
    with pytest.raises(ValueError):
        split(rows_of(2), [0.1, math.nan], 3)
    with pytest.raises(ValueError):
        split(rows_of(2), [0.1], 3)


def test_metrics_of_a_signal_that_follows_the_std():
    buckets = split(rows_of(4), [0.0, 0.1, 0.2, 0.4], 4)
    norms = [{"task": 1.0, "entropy": 5.0}, *({"task": t, "entropy": 5.0} for t in (0.1, 0.3, 0.9, 2.0))]
    metrics = summarize(buckets, norms, {"entropy": -0.01, "kl": 0.0})
    assert metrics["grad_norm/all/task"] == 1.0
    assert metrics["grad_norm/bucket_4/task"] == 2.0
    assert metrics["grad_norm/bucket_4/signal_to_noise"] == pytest.approx(2.0 / 0.05)
    assert metrics["grad_norm/task_high_over_low"] == pytest.approx(20)
    assert metrics["grad_norm/entropy_high_over_low"] == 1
    assert metrics["grad_norm/task_rank_correlation"] == pytest.approx(1)
    assert "grad_norm/entropy_rank_correlation" not in metrics  # constant: no order to compare
    assert metrics["grad_norm/all/reward_std_mean"] == pytest.approx(0.175)
    assert metrics["grad_norm/bucket_3/reward_std_min"] == metrics["grad_norm/bucket_3/reward_std_max"] == 0.2
    assert metrics["grad_norm/bucket_1/sample_count"] == 3 and metrics["grad_norm/bucket_1/sample_pct"] == 0.25


def test_without_regularisers_there_is_no_noise_to_compare_with():
    buckets = split(rows_of(2), [0.1, 0.2], 2)
    metrics = summarize(buckets, [{"task": 1.0, "entropy": 2.0}] * 3, {"entropy": 0.0, "kl": 0.0})
    assert not [name for name in metrics if "signal_to_noise" in name or "rank_correlation" in name]
    with_kl = summarize(buckets, [{"task": 1.0, "entropy": 2.0, "kl": 4.0}] * 3, {"entropy": 0.5, "kl": 0.25})
    assert with_kl["grad_norm/all/signal_to_noise"] == pytest.approx(0.5)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=3, max_size=8).filter(lambda values: len(set(values)) > 1))
def test_rank_correlation_is_spearmans(values):
    buckets = split(rows_of(len(values)), list(range(len(values))), len(values))
    norms = [{"task": 1.0}, *({"task": float(value)} for value in values)]
    found = summarize(buckets, norms, {})["grad_norm/task_rank_correlation"]
    assert found == pytest.approx(np.corrcoef(range(len(values)), pd.Series(values).rank())[0, 1])


# -- config -----------------------------------------------------------------------------------------------------------


def test_config():
    assert parse(GradientSignal, {"buckets": 3}, "ragen.x") == GradientSignal(buckets=3)
    for bad in ({"every": 0}, {"buckets": 1}, {"bucket": 3}):
        with pytest.raises(RecipeError, match=r"ragen\.x\."):
            parse(GradientSignal, bad, "ragen.x")


def test_what_cannot_be_measured_is_refused_at_start():
    on = GradientSignal(enabled=True)
    on.check("fsdp2", 8)
    GradientSignal().check("megatron", 1)
    with pytest.raises(RecipeError, match="megatron"):
        on.check("megatron", 8)
    with pytest.raises(RecipeError, match=r"rollout\.n is 1"):
        on.check("fsdp", 1)
