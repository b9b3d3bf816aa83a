"""Scores and strategies that are not this package's: what they are given, and what they may return."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ragen_verl.config.filter import Filter
from ragen_verl.config.schema import parse
from ragen_verl.errors import RecipeError
from ragen_verl.filter import SCORES, STRATEGIES, Candidates, Rule, score, select, strategy

RETURNS = [0.0, 4.0, 1.0, 1.0, 3.0, 5.0, 2.0, 2.5]
LABELS = list("aabbccdd")  # standard deviations: a most, then c, d, b


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """Whatever a test registers is gone after it."""
    before = [dict(registry._things) for registry in (SCORES, STRATEGIES)]
    yield
    for registry, things in zip((SCORES, STRATEGIES), before, strict=True):
        registry._things.clear()
        registry._things.update(things)


def kept(name: str, **rule) -> tuple:
    return select(RETURNS, LABELS, rule=Rule(name, **rule)).groups


@pytest.mark.parametrize(
    "found",
    [slice(0, 3, 2), [0, 2], np.array([2, 0]), [True, False, True, False], np.array([0, 2], dtype=np.uint8)],
    ids=repr,
)
def test_groups_are_selected_by_slice_indices_or_mask(found: object) -> None:
    strategy("mine")(lambda candidates: found)
    assert kept("mine") == ("a", "d")


def test_a_strategy_is_given_ranks_returns_and_groups() -> None:
    seen: list[Candidates] = []

    @strategy("mine")
    def mine(candidates: Candidates, *, bound: float = 0.5) -> np.ndarray:
        seen.append(candidates)
        return candidates.scores > bound

    assert kept("mine", options={"bound": 1.0}, total=8) == ("a", "c")
    [given] = seen
    assert given.scores == pytest.approx([8**0.5, 2**0.5, 0.125**0.5, 0.0])
    assert [one.tolist() for one in given.returns] == [[0, 4], [3, 5], [2, 2.5], [1, 1]]
    assert given.total == 8 and given.largest
    assert kept("mine") == ("a", "c")  # the default
    assert kept("mine", largest=False) == ("a", "c") and seen[-1].scores[0] == 0


def test_trajectories_are_selected_over_all_returns() -> None:
    @strategy("winners", selects="trajectories", ranks=False)
    def winners(candidates: Candidates) -> np.ndarray:
        return np.concatenate([one == one.max() for one in candidates.returns])

    found = select(RETURNS, LABELS, rule=Rule("winners"))
    assert found.kept.tolist() == [1, 2, 3, 5, 7] and found.groups == tuple("abcd")


def test_strategy_may_select_nothing() -> None:
    strategy("nothing")(lambda candidates: [])
    found = select(RETURNS, LABELS, rule=Rule("nothing"))
    assert found.groups == () and not len(found.kept)
    assert "rollout/selected_return_excess" not in found.metrics


@pytest.mark.parametrize("found", [[4], [-1], [0, 0], [0.5], [True, False], "all", None, [[0]]], ids=repr)
def test_selection_of_what_is_not_there_is_refused(found: object) -> None:
    strategy("mine")(lambda candidates: found)
    with pytest.raises(ValueError, match="filter strategy mine has to select by a mask of 4"):
        kept("mine")


def test_score_ranks_by_its_own_statistic_and_options() -> None:
    @score("quantile", signed=True)
    def quantile(values: np.ndarray, *, level: float = 0.5) -> float:
        return float(np.quantile(values, level))

    rule = {"score": "quantile"}
    assert kept("top_k_count", options={"value": 1}, **rule) == ("c",)
    assert kept("top_k_count", options={"value": 2, "level": 0.0}, **rule) == ("c", "d")


def test_recipe_names_them_and_gives_options() -> None:
    score("wide", least=2)(lambda values, *, power: float(np.ptp(values)) ** power)

    @strategy("above")
    def above(candidates: Candidates, *, bound: float = 0.5) -> np.ndarray:
        return candidates.scores > bound

    def read(**keys: object) -> Filter:
        return parse(Filter, keys, "ragen.filter")

    rule = read(strategy="above", score="wide", power=2, bound=3).rule(8, 2)
    assert rule.options == {"bound": 3.0, "power": 2} and rule.score == "wide"
    assert select(RETURNS, LABELS, rule=rule).groups == ("a", "c")
    assert read(strategy="above", value=None, range=None).compares_trajectories
    assert read(strategy="above").rule(8, 2).options == {"bound": 0.5}
    for keys, words in (
        ({"strategy": "above", "bound": "high"}, "ragen.filter.bound is 'high' but has to be a number or null (filter"),
        ({"strategy": "above", "score": "wide"}, "ragen.filter.power is missing: filter score wide needs it"),
        ({"strategy": "above", "value": 0.5}, "top_k, top_k_count, top_p, min_p or within_group"),
        ({"strategy": "top_k", "bound": 0.5}, "ragen.filter.strategy to above"),
        ({"strategy": "above", "power": 2.0}, "ragen.filter.score to wide"),
        ({"strategy": "above", "bund": 0.5}, "did you mean bound?"),
        ({"strategy": "abov"}, "did you mean above?"),
    ):
        with pytest.raises(RecipeError) as refusal:
            read(**keys)
        assert words in str(refusal.value)


def test_name_that_is_taken_is_refused() -> None:
    with pytest.raises(RecipeError, match="filter strategy 'top_k' exists already"):
        strategy("top_k")(lambda candidates: slice(0, 1))
    with pytest.raises(RecipeError, match="filter score 'std' exists already"):
        score("std")(lambda values: 1.0)
