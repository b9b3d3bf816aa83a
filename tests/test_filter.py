from __future__ import annotations

import math
import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_verl.filter import STRATEGIES, group_scores, keep_count, select, top_k

# returns on a coarse grid, so that ties and groups without spread are common
RETURNS = st.integers(-5, 20).map(lambda tenths: tenths / 10)
BATCH = st.lists(st.tuples(RETURNS, st.integers(0, 5), st.sampled_from([False, False, False, True])), max_size=40)
FRACTION = st.floats(0.01, 1.0)


def reference(batch: list[tuple[float, int, bool]], fraction: float) -> list[int]:
    """The kept rows, written down the slow and obvious way."""
    labels: list[int] = []
    for _, group, _ in batch:
        if group not in labels:
            labels.append(group)
    ranked = []
    for position, label in enumerate(labels):
        values = [ret for ret, group, excluded in batch if group == label and not excluded]
        if len(values) >= 2:
            mean = math.fsum(values) / len(values)
            variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
            ranked.append((-round(math.sqrt(variance), 12), position, label))
    ranked.sort()
    k = max(1, math.floor(fraction * len(labels) + 1e-9))
    if ranked:
        kept = {label for _, _, label in ranked[:k]}
    else:  # nothing to rank by: the first groups that have a row at all
        alive = [label for label in labels if any(g == label and not out for _, g, out in batch)]
        kept = set(alive[: max(1, math.floor(fraction * len(alive) + 1e-9))])
    return [row for row, (_, group, excluded) in enumerate(batch) if group in kept and not excluded]


def columns(batch: list[tuple[float, int, bool]]) -> tuple[list, list, list]:
    return [row[0] for row in batch], [row[1] for row in batch], [row[2] for row in batch]


@settings(deadline=None)
@given(BATCH, FRACTION)
def test_top_k_agrees_with_the_slow_way(batch: list, fraction: float) -> None:
    # equal spreads can differ in the last bit between two ways of adding up: compare where no near-tie decides
    stds = sorted(s for s in group_scores(*columns(batch)).std if np.isfinite(s))
    if any(0 < b - a < 1e-9 for a, b in pairwise(stds)):
        return
    chosen = select(*columns(batch), strategy="top_k", value=fraction)
    assert chosen.rows.tolist() == reference(batch, fraction)


@settings(deadline=None)
@given(BATCH, FRACTION, st.sampled_from(["none", *STRATEGIES]))
def test_selection_is_a_partition_of_the_batch_without_excluded_rows(batch: list, fraction: float, name: str) -> None:
    returns, groups, excluded = columns(batch)
    chosen = select(returns, groups, excluded, strategy=name, value=None if name == "none" else fraction)
    assert sorted([*chosen.rows, *chosen.dropped]) == list(range(len(batch)))
    assert not any(excluded[row] for row in chosen.rows)
    assert {groups[row] for row in chosen.rows} == set(chosen.groups)
    assert bool(len(chosen.rows)) == (not all(excluded))
    for row, group in enumerate(groups):  # whole groups or nothing
        assert (row in chosen.rows) == (group in chosen.groups and not excluded[row])


@settings(deadline=None)
@given(BATCH, FRACTION, st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter_but_for_ties(batch: list, fraction: float, rng: random.Random) -> None:
    scores = select(*columns(batch)).scores
    shuffled = list(batch)
    rng.shuffle(shuffled)
    assert select(*columns(shuffled)).scores == pytest.approx(scores)


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=12), FRACTION)
def test_top_k_keeps_the_highest(scores: list[float], fraction: float) -> None:
    kept = top_k(np.array(scores), fraction)
    assert len(kept) == max(1, keep_count(fraction, len(scores)))
    left = [score for i, score in enumerate(scores) if i not in kept]
    assert not left or min(scores[i] for i in kept) >= max(left)


def test_paper_setting_keeps_two_of_eight_groups() -> None:
    returns = [spread * sign for spread in range(8) for sign in (-1, 1)]
    groups = [label for label in "abcdefgh" for _ in range(2)]
    chosen = select(returns, groups, strategy="top_k")
    assert chosen.groups == ("g", "h")
    assert chosen.rows.tolist() == [12, 13, 14, 15]


def test_score_is_the_sample_standard_deviation() -> None:
    assert group_scores([0.0, 1.0, 1.0], [0, 0, 0]).std[0] == pytest.approx(math.sqrt(1 / 3))


def test_earlier_group_wins_a_tie() -> None:
    chosen = select([0, 1, 0, 1, 0, 1], ["z", "z", "a", "a", "m", "m"], strategy="top_k", value=0.34)
    assert chosen.groups == ("z",)


def test_equal_returns_have_exactly_no_spread() -> None:
    stats = group_scores([0.1] * 7, [0] * 7)
    assert stats.std[0] == 0.0
    assert select([0.1] * 7, [0] * 7).metrics["rollout/filter_zero_count"] == 1


def test_single_member_is_never_preferred() -> None:
    chosen = select([5.0, 0.0, 0.0], ["alone", "pair", "pair"], strategy="top_k", value=0.5)
    assert chosen.groups == ("pair",)
    assert chosen.scores["alone"] == -math.inf


def test_single_members_are_kept_where_there_is_nothing_else() -> None:
    assert select([5.0, 1.0], ["a", "b"], strategy="top_k", value=0.5).groups == ("a",)
    assert select([5.0, 1.0], ["a", "b"], min_members=1).groups == ("a", "b")


def test_without_a_filter_a_group_reduced_to_one_member_is_left_out() -> None:
    chosen = select([1.0, 2.0, 3.0, 4.0], ["a", "a", "b", "b"], [False, False, True, False])
    assert chosen.groups == ("a",)
    assert chosen.dropped.tolist() == [2, 3]


def test_nothing_is_selected_where_all_failed() -> None:
    chosen = select([1.0, 2.0], ["a", "a"], [True, True], strategy="top_k", value=0.5)
    assert chosen.groups == () and not len(chosen.rows)
    assert chosen.metrics["rollout/filter_kept_ratio"] == 0


def test_empty_batch_selects_nothing() -> None:
    assert not len(select([], [], strategy="top_k", value=0.5).rows)


def test_fraction_does_not_lose_a_group_to_rounding() -> None:
    assert keep_count(0.29, 100) == 29  # 0.29 * 100 is 28.999999999999996
    assert keep_count(0.25, 8) == 2
    assert keep_count(0.1, 8) == 0


def test_metrics_have_ragens_names_and_values() -> None:
    metrics = select([0.0, 2.0, 1.0, 1.0], ["a", "a", "b", "b"], strategy="top_k", value=0.5).metrics
    assert metrics["rollout/in_group_std"] == pytest.approx(math.sqrt(2) / 2)
    assert metrics["rollout/chosen_in_group_std"] == pytest.approx(math.sqrt(2))
    assert metrics["rollout/in_group_reward_max"] == metrics["rollout/in_group_max"] == 1.5
    assert metrics["rollout/chosen_in_group_reward_sum"] == 2.0
    assert metrics["rollout/chosen_in_group_mean"] == 1.0
    assert metrics["rollout/filter_kept_count"] == 1
    assert metrics["rollout/filter_kept_ratio"] == 0.5
    assert metrics["rollout/filter_zero_count"] == 1


def test_batch_of_unequal_columns_or_a_bad_return_is_refused() -> None:
    with pytest.raises(ValueError, match="not one batch"):
        group_scores([1.0], [0, 1])
    with pytest.raises(ValueError, match="finite"):
        group_scores([float("nan")], [0])
    group_scores([float("nan")], [0], [True])  # what failed may have any return
