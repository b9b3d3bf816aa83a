"""How old the weights are that a step trains on, from verl's tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transfer_queue import KVBatchMeta

from ragen_verl.training.batch import TrajectoryBatch
from ragen_verl.training.staleness import fresh_rows, staleness

ROW = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted)


def batch_of(rows: list[list[list[int]]], sampled: list[int]) -> tuple[KVBatchMeta, TrajectoryBatch]:
    """Trajectories, each with rows of (first weights, last weights), and the tokens that each sampled."""
    keys = tuple(tuple(f"u{t}_0_{r}" for r in range(len(mine))) for t, mine in enumerate(rows))
    tags = [{"min_global_steps": first, "max_global_steps": last} for mine in rows for first, last in mine]
    records = tuple({"metrics": {"response_length": tokens}} for tokens in sampled)
    batch = KVBatchMeta(partition_id="train", keys=[key for mine in keys for key in mine], tags=tags)
    return batch, TrajectoryBatch(records, tuple(f"u{t}" for t in range(len(rows))), keys)


@given(st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=8))
def test_staleness_counts_from_the_oldest_token(rows: list[list[list[int]]]) -> None:
    batch, played = batch_of(rows, [3] * len(rows))
    first = [min(pair[0] for pair in mine) for mine in rows]
    last = [max(pair[1] for pair in mine) for mine in rows]
    ages = [10 - one for one in first]
    found = staleness(batch, played, 11)
    assert found["rollout/staleness_mean"] == pytest.approx(sum(ages) / len(ages))
    assert found["rollout/staleness_max"] == max(ages)
    mixed = [a != b for a, b in zip(first, last, strict=True)]
    assert found["rollout/mixed_weights"] == pytest.approx(sum(mixed) / len(mixed))


def test_trajectories_without_a_token_have_no_age() -> None:
    batch, played = batch_of([[[0, 0]], [[4, 5]]], [0, 7])
    assert staleness(batch, played, 6) == {
        "rollout/staleness_mean": 1.0,
        "rollout/staleness_max": 1.0,
        "rollout/mixed_weights": 1.0,
    }
    assert staleness(*batch_of([[[0, 0]]], [0]), 6) == {}


def test_a_synchronous_step_is_fresh() -> None:
    batch, played = batch_of([[[5, 5]], [[5, 5]]], [1, 1])
    assert staleness(batch, played, 6)["rollout/staleness_max"] == 0.0
    assert fresh_rows(batch, 6) == ["u0_0_0", "u1_0_0"]


def test_fresh_rows_are_neither_old_nor_padding() -> None:
    batch, _ = batch_of([[[5, 5]], [[4, 5]], [[5, 5]]], [1, 1, 1])
    batch.tags[2]["is_padding"] = True
    assert fresh_rows(batch, 6) == ["u0_0_0"]
