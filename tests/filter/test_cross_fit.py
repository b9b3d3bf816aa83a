"""Cross-fitting: a half of a group is kept by the returns of the other half alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ragen_verl.filter import Rule, select

RULES = (
    Rule("top_k", {"value": 0.5}, cross_fit=True),
    Rule("top_p", {"value": 0.7}, cross_fit=True),
    Rule("top_p", {"value": 0.7}, drop_zero_variance=True, cross_fit=True),
    Rule("min_p", {"value": 0.5}, cross_fit=True),
    Rule("percentile", {"range": (0, 50)}, score="mean", cross_fit=True),
    Rule("none", drop_zero_variance=True, cross_fit=True),
)
P, N = 4, 4
BATCH = st.lists(st.lists(st.integers(0, 3).map(float), min_size=N, max_size=N), min_size=P, max_size=P)


def kept(batch: list[list[float]], rule: Rule) -> set[tuple[int, int]]:
    """(group, rollout index) of every kept trajectory."""
    found = select(
        [value for group in batch for value in group],
        [group for group in range(P) for _ in range(N)],
        rule=rule,
        rollout_indices=[index for _ in range(P) for index in range(N)],
    )
    return {(int(i) // N, int(i) % N) for i in found.kept}


def test_each_half_is_kept_by_the_other_by_hand() -> None:
    returns = [[0, 0, 4, 0], [0, 0, 1, 9], [0, 5, 2, 5], [3, 1, 3, 2]]  # rollout indices 0, 1, 2, 3
    found = select(
        np.ravel(returns),
        [label for label in "abcd" for _ in range(4)],
        rule=Rule("top_k", {"value": 0.25}, cross_fit=True),
        rollout_indices=[0, 1, 2, 3] * 4,
    )
    assert found.kept.tolist() == [1, 3, 4, 6]  # a's odd half for 0, 4; b's even half for 0, 9
    assert found.groups == ("a", "b")
    assert found.scores["a", 0] == pytest.approx(8**0.5) and found.scores["b", 1] == pytest.approx(40.5**0.5)
    assert found.metrics["rollout/filter_kept_count"] == 1  # two halves
    assert found.metrics["rollout/filter_kept_ratio"] == 0.25
    assert found.metrics["rollout/chosen_in_group_std"] == pytest.approx((0 + 0.5**0.5) / 2)  # of the kept halves
    means = [2, 0.5, 1, 3, 0, 4.5, 5, 1.5]
    assert found.metrics["rollout/selected_return_excess"] == pytest.approx((0 + 0.5) / 2 - np.mean(means))
    error = np.std(means, ddof=1) * (1 / 2 - 1 / 8) ** 0.5
    assert found.metrics["rollout/selected_return_excess_error"] == pytest.approx(error)


@settings(deadline=None, max_examples=150)
@given(BATCH, BATCH, st.sampled_from(RULES), st.sampled_from([0, 1]))
def test_no_half_has_a_part_in_whether_it_is_kept(batch: list, other: list, rule: Rule, half: int) -> None:
    mixed = [[o if i % 2 == half else b for i, (b, o) in enumerate(zip(*both))] for both in zip(batch, other)]  # noqa: B905
    of_half = [{one for one in kept(found, rule) if one[1] % 2 == half} for found in (batch, mixed)]
    assert of_half[0] == of_half[1]


@settings(deadline=None)
@given(BATCH, st.sampled_from(RULES))
def test_halves_are_whole(batch: list, rule: Rule) -> None:
    found = kept(batch, rule)
    for group, index in found:
        assert (group, (index + 2) % 4) in found


@settings(deadline=None)
@given(BATCH, st.sampled_from(RULES), st.sampled_from([0, 1]))
def test_half_is_selected_as_a_batch_of_the_other_halves_is(batch: list, rule: Rule, half: int) -> None:
    others = [one for group in batch for one in group[half::2]]
    alone = select(others, [group for group in range(P) for _ in range(2)], rule=replace(rule, cross_fit=False))
    assert set(alone.groups) == {group for group, index in kept(batch, rule) if index % 2 != half}


def test_failed_trajectories_neither_decide_nor_stay() -> None:
    returns = [0.0, 1.0, 9.0, 2.0, 0.0, 1.0, 1.0, 5.0]
    excluded = [False, False, True, False, False, False, False, False]
    found = select(
        returns, list("aaaabbbb"), excluded,
        rule=Rule("top_k", {"value": 0.5}, cross_fit=True), rollout_indices=[0, 1, 2, 3] * 2,
    )  # fmt: skip
    assert found.kept.tolist() == [4, 5, 6, 7]  # a's even half has one member left, so nothing is known of it


def test_rollout_indices_are_needed() -> None:
    with pytest.raises(ValueError, match="rollout index"):
        select([0.0] * 4, [0] * 4, rule=Rule("top_k", {"value": 0.5}, cross_fit=True))


@settings(deadline=None)
@given(st.lists(st.integers(0, 3).map(float), min_size=12, max_size=12), st.integers(1, 5))
def test_excess_and_its_error_are_those_of_a_random_choice(returns: list, count: int) -> None:
    """Over all choices of the same size the excess has mean 0 and the stated standard error."""
    groups = [group for group in range(6) for _ in range(2)]
    means = np.array(returns).reshape(6, 2).mean(axis=1)
    assume(np.ptp(means) > 0)
    found = select(returns, groups, rule=Rule("top_k_count", {"value": count}))
    every = [means[list(some)].mean() - means.mean() for some in combinations(range(6), count)]
    assert found.metrics["rollout/selected_return_excess"] == pytest.approx(
        means[list(found.groups)].mean() - means.mean()
    )
    assert found.metrics["rollout/selected_return_excess_error"] == pytest.approx(np.std(every))
    assert np.mean(every) == pytest.approx(0, abs=1e-12)
