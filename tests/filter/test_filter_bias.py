"""The enumeration of benchmarks/filter_bias.py against the package's own filter on every outcome of a small step."""

from __future__ import annotations

import importlib.util
import sys
from itertools import product

import numpy as np
import pytest
from paths import ROOT

from ragen_verl.filter import Rule, select

P = 2


@pytest.fixture(scope="module")
def bias():
    spec = importlib.util.spec_from_file_location("filter_bias", ROOT / "benchmarks" / "filter_bias.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["filter_bias"] = module
    spec.loader.exec_module(module)
    return module


def enumerated(bias, rule: Rule, size: int, p: float, low: float) -> float:
    """The centred push of a kept pull, from the selection of every outcome; a group is one half or two."""
    step = [(group, half) for group in range(P) for half in range(2 if rule.cross_fit else 1)]
    pushed = kept = 0.0
    for outcome in product(bias.kinds(size, p, low), repeat=len(step)):
        found = select(
            [value for kind in outcome for value in kind.returns],
            [group for group, _ in step for _ in range(size)],
            rule=rule,
            rollout_indices=[half for _, half in step for _ in range(size)],
        )
        mine = [outcome[place] for place in np.unique(found.kept // size)]
        weight = np.prod([kind.chance for kind in outcome])
        pushed += weight * sum(kind.push["centred"] for kind in mine)
        kept += weight * len(mine)
    return pushed / kept


def free(bias, size: int, p: float, low: float) -> float:
    return sum(kind.chance * kind.push["centred"] for kind in bias.kinds(size, p, low))


@pytest.mark.parametrize(("p", "low"), [(0.1, 0.15), (0.5, 0.35)])
def test_formulas_are_the_filters_own_expectation(bias, p: float, low: float) -> None:
    groups = bias.kinds(4, p, low)
    top_k = bias.expected(groups, bias.top_k(groups, 1, P))["centred"]
    assert enumerated(bias, Rule("top_k", {"value": 0.5}), 4, p, low) == pytest.approx(top_k)
    top_p = bias.expected(groups, bias.top_p(groups, 0.9, P))["centred"]
    assert enumerated(bias, Rule("top_p", {"value": 0.9}), 4, p, low) == pytest.approx(top_p)


def test_choosing_by_ones_own_returns_is_biased(bias) -> None:
    """Where the risky arm is the worse one, a quarter of the groups learns it."""
    groups = bias.kinds(8, 0.1, 0.35)
    chosen = bias.expected(groups, bias.top_k(groups, 4, 16))
    assert free(bias, 8, 0.1, 0.35) < 0 < chosen["centred"]


def test_cross_fitted_top_k_is_exactly_unbiased(bias) -> None:
    rule = Rule("top_k", {"value": 0.5}, cross_fit=True)
    assert enumerated(bias, rule, 2, 0.1, 0.35) == pytest.approx(free(bias, 2, 0.1, 0.35), rel=1e-12)


def test_baseline_may_hold_the_other_half_unless_chosen_by_it(bias) -> None:
    found = bias.wider_baselines(0.1, 0.35, 4, 16)
    assert found["others"] == pytest.approx(1, rel=1e-12)
    assert abs(found["kept"] - 1) > 0.01
