"""The screen of benchmarks/bandit_screen.py against the package's filter, the exact enumeration and its page."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from paths import ROOT

from ragen_verl.filter import Rule, select

BENCHMARKS = ROOT / "benchmarks"
RULES = {
    "top-k 0.25": Rule("top_k", {"value": 0.25}),
    "top-p 0.9": Rule("top_p", {"value": 0.9}),
    "top-p 0.9, softmax": Rule("top_p", {"value": 0.9, "mass": "softmax"}),
    "min-p 0.2": Rule("min_p", {"value": 0.2}),
}


@pytest.fixture(scope="module")
def screen():
    sys.path.insert(0, str(BENCHMARKS))
    import bandit_screen

    yield bandit_screen
    sys.path.remove(str(BENCHMARKS))


@given(arrays(float, (16, 8), elements=st.floats(0, 1, width=16)))
def test_vectorised_filters_keep_what_the_packages_filter_keeps(screen, returns: np.ndarray) -> None:
    std = returns.std(axis=-1, ddof=1)
    if len(np.unique(std)) < len(std) or std.min() < 1e-6:
        return  # ties are broken at random there
    for name, keep in screen.FILTERS.items():
        kept = select(returns.ravel(), np.repeat(np.arange(16), 8), rule=RULES[name]).kept
        assert set(kept // 8) == set(np.flatnonzero(keep(std))), name


@pytest.mark.parametrize("steady", [0.15, 0.35])
def test_the_screens_push_is_the_enumerated_one(screen, steady: float) -> None:
    from filter_bias_map import push

    found, error = screen.ratio(screen.Cell("", steady, keep="top-k 0.25"), 0.2, 4_000)
    assert abs(found - push(0.2, steady, 1.0, 0.25)) < 5 * error < 1


def test_halves_with_draws_of_their_own_cure_shared_luck(screen) -> None:
    shared, halves = (
        screen.ratio(screen.Cell("", 0.35, keep="top-k 0.25", draws=draws, cross_fit=True), 0.2, 4_000)
        for draws in ("shared", "halves")
    )
    assert shared[0] < -1 and abs(halves[0] - 1) < 5 * halves[1]


def test_the_page_has_the_tables_of_the_committed_screen(screen) -> None:
    page = (ROOT / "docs" / "selection_bias.md").read_text("utf-8")
    for line in screen.show(json.loads(screen.RESULT.read_text())).splitlines():
        assert line in page


def test_the_screen_tells_what_training_found(screen) -> None:
    for row in json.loads(screen.RESULT.read_text())["cells"]:
        for end in row["trained"] or []:
            assert (end > 0.5) == (row["risky"] > 0.5), row["name"]
