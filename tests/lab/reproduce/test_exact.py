"""Exact tests, spent levels and the chance that the seeds left decide."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import reference_exact as reference
from hypothesis import given
from hypothesis import strategies as st
from ragen_lab.reproduce.catalogue import experiments
from ragen_lab.reproduce.estimates import difference, paired_difference
from ragen_lab.reproduce.exact import chance_of_a_decision, sign_flips, splits
from ragen_lab.reproduce.experiment_protocol import LEVEL
from ragen_lab.reproduce.survival import share_of_runs

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "reproduction"
SMALL = st.lists(st.integers(-5, 5), min_size=2, max_size=5)


@given(SMALL)
def test_sign_flips_are_the_slow_ones(values: list[int]) -> None:
    assert sign_flips(values) == pytest.approx(float(reference.sign_flips(values)))


@given(SMALL, SMALL)
def test_splits_are_the_slow_ones(first: list[int], second: list[int]) -> None:
    assert splits(first, second) == pytest.approx(float(reference.splits(first, second)))


@given(st.integers(1, 14), st.data(), st.sampled_from([Fraction(1, 2), Fraction(1, 5)]))
def test_the_share_of_runs_is_the_slow_binomial_test(runs: int, data: st.DataObject, share: Fraction) -> None:
    hits = data.draw(st.integers(0, runs))
    found = share_of_runs(hits, runs, float(share))
    assert found.p_value == pytest.approx(float(reference.binomial(hits, runs, share)))
    assert found.interval.value == pytest.approx(hits / runs - float(share))


def test_too_many_arrangements_have_no_exact_p() -> None:
    assert sign_flips([1.0] * 15) is None and splits(range(12), range(12)) is None
    assert sign_flips([1.0]) is None and splits([1.0], [2.0, 3.0]) is None


def test_tests_by_t_have_an_exact_p_beside_them() -> None:
    table = np.array([[0.3, 0.1], [0.2, 0.4], [0.1, 0.1], [0.5, 0.4], [0.2, 0.2]])
    assert paired_difference(table).exact_p == 2 / 2**5
    assert difference([3.0, 4.0, 5.0, 6.0, 7.0], [0.0, 1.0, 2.0, 1.5, 2.5]).exact_p == pytest.approx(2 / 252)


@pytest.mark.parametrize("seed", range(3))
def test_the_chance_of_a_decision_is_that_of_drawn_trends(seed: int) -> None:
    """The test statistic goes on as a Brownian motion with the drift seen so far."""
    rng = np.random.default_rng(seed)
    p_value, done, seeds = 0.2, int(rng.integers(2, 6)), 8
    share, now = done / seeds, 1.2815515594600038
    ends = now * share**0.5 + now / share**0.5 * (1 - share) + rng.normal(size=200_000) * (1 - share) ** 0.5
    assert chance_of_a_decision(p_value, done, seeds, LEVEL) == pytest.approx(
        (ends > 1.959963984540054).mean(), abs=5e-3
    )


def test_looks_spend_the_level_and_no_more() -> None:
    for one in experiments().values():
        looks = one.protocol.looks_at(len(one.seeds))
        assert sum(looks.values()) <= LEVEL + 1e-9 and max(looks) <= len(one.seeds)
        assert min(looks) == min(one.protocol.least_seeds, len(one.seeds))


def test_the_page_counts_the_collapses_of_all_runs() -> None:
    found = [json.loads((RESULTS / f"{item}.json").read_text()) for item in ("e2_starpo_s", "e2d_smaller_step")]
    runs = [run for one in found for run in one["runs"] if run["variant"] == "ppo"]
    hits = sum(run["values"]["steps without train/success below 0.1"]["collapsed"] for run in runs)
    share = share_of_runs(hits, len(runs), 0.5).interval
    said = experiments()["e1_echo_trap"].protocol.finding
    assert f"{hits} of {len(runs)} (exact 95 % {share.low + 0.5:.2f} to {share.high + 0.5:.2f})" in said
