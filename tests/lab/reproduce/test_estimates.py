"""Estimates over runs against slow ones, and how often they find what is not there."""

from __future__ import annotations

import numpy as np
import pytest
import reference_estimates as reference
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ragen_lab.reproduce.decisions import Decision, best_of_flat, direction, level
from ragen_lab.reproduce.estimates import (
    difference,
    holm,
    interquartile_mean,
    mean_of_runs,
    paired_difference,
    probability_of_improvement,
    stratified_bootstrap,
)
from ragen_lab.reproduce.survival import compare_survival, log_rank_scores, restricted_mean, survival_curve
from scipy import stats

SCORES = st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=1, max_size=9)
TIMES = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=2, max_size=4)
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=7)
SIMULATIONS = 1_000


@given(SCORES, SCORES)
def test_means_and_improvement_are_the_slow_ones(first: list[list[float]], second: list[list[float]]) -> None:
    values = [one for run in first for one in run]
    assert interquartile_mean(np.array(first)) == pytest.approx(reference.interquartile_mean(values))
    found = probability_of_improvement(np.array(first), np.array(second), resamples=2)
    assert found.value == pytest.approx(reference.probability_of_improvement(first, second))


@given(st.lists(st.lists(st.floats(-1, 1), min_size=4, max_size=4), min_size=2, max_size=5))
def test_paired_differences_are_clustered_by_both(table: list[list[float]]) -> None:
    found, variance = paired_difference(np.array(table)), reference.clustered_variance(table)
    half = (found.interval.high - found.interval.low) / 2
    assert half == pytest.approx(variance**0.5 * stats.t.ppf(0.975, len(table) - 1), abs=1e-7)


def test_paired_difference_of_numbers_is_the_t_test() -> None:
    values = np.array([0.1, 0.3, -0.1, 0.2, 0.15])
    found, test = paired_difference(values[:, None]), stats.ttest_1samp(values, 0.0)
    assert found.p_value == pytest.approx(test.pvalue)
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(test.confidence_interval()))
    assert mean_of_runs(values).low == pytest.approx(found.interval.low)


def test_one_run_has_no_interval_and_decides_nothing() -> None:
    assert paired_difference(np.ones((1, 5))).interval.low is None
    assert paired_difference(np.ones((1, 5))).p_value == difference([1.0], [0.0, 0.0]).p_value == 1.0
    assert level([0.5], 0.5, 0.1)[0] is Decision.UNDECIDED


def test_runs_that_agree_exactly_have_an_interval_of_a_point() -> None:
    found = paired_difference(np.ones((5, 3)))
    assert (found.interval.low, found.interval.high, found.p_value) == (1.0, 1.0, 0.0)
    assert difference([1.0, 1.0], [1.0, 1.0]).p_value == 1.0


@given(P_VALUES)
def test_holm_is_the_definition(values: list[float]) -> None:
    assert holm(values) == pytest.approx(reference.holm(values))


def test_bootstrap_draws_runs_within_a_task() -> None:
    scores = np.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0], [3.0, 13.0]])
    found = stratified_bootstrap(scores, statistic=lambda one: one.mean(axis=(-2, -1)))
    assert found.value == 6.5 and 5.0 <= found.low < 6.5 < found.high <= 8.0
    assert stratified_bootstrap(scores) == stratified_bootstrap(scores)


@settings(max_examples=40, deadline=None)
@example([(1, False), (1, False), (2, True), (2, True)], [(1, True), (2, False)])
@given(TIMES, TIMES)
def test_log_rank_is_that_of_all_exchanges(first: list, second: list) -> None:
    numerator = log_rank_scores([*first, *second])[: len(first)].sum()
    assert numerator == pytest.approx(reference.observed_less_expected(first, second))
    if any(died for _, died in [*first, *second]):
        assert compare_survival(first, second).p_value == pytest.approx(reference.exact_log_rank(first, second))


def test_log_rank_is_near_scipys_with_many_runs() -> None:
    rng = np.random.default_rng(3)
    first = [(int(step), True) for step in rng.integers(1, 100, 40)]
    second = [(int(step), bool(step < 110)) for step in np.minimum(rng.integers(20, 140, 40), 110)]
    data = [
        stats.CensoredData.right_censored([s for s, _ in side], [not d for _, d in side]) for side in (first, second)
    ]
    assert compare_survival(first, second).p_value == pytest.approx(stats.logrank(*data).pvalue, abs=0.005)


def test_survival_counts_runs_that_did_not_collapse() -> None:
    times = [(10, True), (20, True), (40, False), (40, False)]
    assert survival_curve(times) == [(0, 1.0), (10, 0.75), (20, 0.5), (40, 0.5)]
    assert restricted_mean(times, 40) == (10 + 20 + 40 + 40) / 4
    assert survival_curve([(40, False)]) == [(0, 1.0)] and restricted_mean([(40, False)], 30) == 30
    later = compare_survival([(40, False)] * 5, [(10, True)] * 5)
    assert later.interval.value == 30 and later.p_value < 0.05


def test_false_findings_of_paired_differences_stay_at_5_percent() -> None:
    rng = np.random.default_rng(0)
    found = {one: 0 for one in Decision}
    for _ in range(SIMULATIONS):
        seeds, states = rng.normal(0, 0.05, (8, 1)), rng.normal(0, 0.3, (1, 64))
        table = seeds + states + rng.normal(0, 0.5, (8, 64))
        one = paired_difference(table)
        found[direction(one.interval.value, one.p_value, "higher")] += 1
    assert found[Decision.CONFIRMED] <= 0.04 * SIMULATIONS and found[Decision.CONTRADICTED] <= 0.04 * SIMULATIONS
    assert found[Decision.CONFIRMED] + found[Decision.CONTRADICTED] >= 0.01 * SIMULATIONS


def test_false_findings_in_a_table_stay_at_5_percent() -> None:
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(SIMULATIONS):
        p_values = [paired_difference(rng.normal(0, 1, (5, 1))).p_value for _ in range(6)]
        wrong += min(holm(p_values)) <= 0.05
    assert 0.025 * SIMULATIONS <= wrong <= 0.07 * SIMULATIONS


def test_false_findings_of_the_log_rank_stay_at_5_percent() -> None:
    rng = np.random.default_rng(2)
    wrong = 0
    for _ in range(200):
        sides = [[(min(int(step), 60), bool(step < 60)) for step in rng.exponential(50, 5) + 1] for _ in range(2)]
        wrong += compare_survival(*sides).p_value <= 0.05
    assert wrong <= 16


def test_levels_pass_only_where_few_and_noisy_runs_do_not() -> None:
    close = [0.20, 0.21, 0.19, 0.20, 0.20]
    assert level(close, 0.20, 0.03)[0] is Decision.PASS
    assert level(close, 0.40, 0.03)[0] is Decision.FAIL
    assert level([0.05, 0.35, 0.2, 0.1, 0.3], 0.20, 0.03)[0] is Decision.UNDECIDED
    assert level([0.19, 0.21], 0.20, 0.001)[0] is Decision.UNDECIDED


def test_a_level_far_off_passes_in_one_case_of_twenty_at_most() -> None:
    rng = np.random.default_rng(4)
    found = [level(list(rng.normal(0.3, 0.03, 5)), 0.2, 0.03)[0] for _ in range(SIMULATIONS)]
    assert found.count(Decision.PASS) <= 0.05 * SIMULATIONS
    found = [level(list(rng.normal(0.2, 0.03, 5)), rng.normal(0.2, 0.03), 0.03)[0] for _ in range(SIMULATIONS)]
    assert found.count(Decision.FAIL) <= 0.05 * SIMULATIONS


def test_the_best_of_a_flat_run_is_above_it() -> None:
    rng = np.random.default_rng(5)
    drawn = rng.binomial(256, 0.2, (4_000, 21)).max(axis=1).mean() / 256 - 0.2
    assert best_of_flat(0.2, 256, 21) == pytest.approx(drawn, abs=0.001) == pytest.approx(0.048, abs=0.001)
    assert best_of_flat(0.2, 256, 1) == pytest.approx(0.0)


def test_equal_runs_on_one_side_give_an_interval_and_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    fallen, lasting = [(60, True), (80, True), (100, False)], [(100, False)] * 5
    found = compare_survival(fallen, lasting)
    assert found.interval.value == pytest.approx(80 - 100) and found.interval.low < found.interval.value
    assert not recwarn.list
