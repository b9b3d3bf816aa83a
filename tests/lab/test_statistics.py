"""Intervals, pass@k and paired comparisons, against what can be counted or computed by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragen_lab.statistics import mean, paired, pass_at_k, rate, wilson
from scipy.stats import binomtest

outcomes = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=6)


def reference_pass_at_k(episodes: list[bool], k: int) -> float:
    chosen = list(combinations(episodes, k))
    return sum(any(one) for one in chosen) / len(chosen)


@given(outcomes, st.integers(1, 6))
def test_pass_at_k_counts_the_subsets_with_a_success(states, k):
    found = pass_at_k(states, k)
    if any(len(one) < k for one in states):
        assert found is None
    else:
        assert found == pytest.approx(np.mean([reference_pass_at_k(one, k) for one in states]))


def test_wilson_interval_of_one_episode_a_state():
    # Wilson (1927) for 7 of 10 at 95 %, worked by hand from (p + z^2/2n -+ z sqrt(p q / n + z^2 / 4 n^2)) / (1 + z^2/n)
    p, n, z = 0.7, 10, 1.959963984540054
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = ((p + z**2 / (2 * n) + sign * half) / (1 + z**2 / n) for sign in (-1, 1))
    found = rate([[True]] * 7 + [[False]] * 3)
    assert (found.value, found.states) == (0.7, 10)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


@given(st.integers(1, 500).flatmap(lambda count: st.tuples(st.integers(0, count), st.just(count))))
def test_wilson_interval_is_scipys(case):
    expected = binomtest(*case).proportion_ci(0.95, method="wilson")
    assert wilson(*case) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_no_success_still_has_an_upper_bound():
    found = rate([[False]] * 20)
    assert found.value == found.low == 0 and 0.1 < found.high < 0.2


@given(outcomes)
def test_a_rate_is_the_mean_over_states(states):
    found = rate(states)
    assert found.value == pytest.approx(np.mean([np.mean(one) for one in states]))
    if found.low is not None:
        assert 0 <= found.low <= found.value <= found.high <= 1


def test_repeating_episodes_of_a_state_adds_no_certainty():
    few = rate([[True, False], [True, True], [False, False], [True, True]])
    many = rate([[True, False] * 50, [True, True] * 50, [False, False] * 50, [True, True] * 50])
    assert (few.low, few.high) == (pytest.approx(many.low), pytest.approx(many.high))


def test_one_state_has_no_interval():
    assert mean([3.0]).low is None and mean([3.0]).value == 3.0


def test_paired_comparison_against_all_sign_flips():
    first, second = [1.0, 0.5, 1.0, 0.0, 1.0], [0.0, 0.5, 0.5, 0.0, 0.0]
    differences = np.subtract(first, second)
    flips = [np.mean(differences * signs) for signs in np.array(np.meshgrid(*[[1, -1]] * 5)).T.reshape(-1, 5)]
    exact = np.mean(np.abs(flips) >= abs(differences.mean()) - 1e-12)
    found = paired(first, second)
    assert found.difference.value == pytest.approx(differences.mean())
    assert found.p_value == pytest.approx(exact)


def test_equal_policies_do_not_differ():
    found = paired([0.5, 1.0], [0.5, 1.0])
    assert (found.difference.value, found.p_value) == (0.0, 1.0)


def test_policies_of_different_states_are_not_paired():
    with pytest.raises(ValueError, match="cannot be paired"):
        paired([1.0], [1.0, 0.0])
