from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference_filter import SCORES as REFERENCE
from reference_filter import kept_groups, largest_variance

from ragen_verl.filter import SCORES, STRATEGIES, Rule, group_scores, keep_count, select
from ragen_verl.filter.registry import read_by
from ragen_verl.filter.strategies import most_varied

BUILT_IN = ("none", "top_k", "top_k_count", "top_p", "min_p", "percentile", "within_group")
RANKING = tuple(name for name in BUILT_IN if STRATEGIES[name].ranks)
DEVIATIONS = ("std", "variance", "entropy_variance")

# values on a coarse grid, so that ties and groups of equal returns are common; sums of quarters are exact
RETURNS = st.integers(-5, 20).map(lambda quarters: quarters / 4)
POSITIVE = st.integers(0, 16).map(lambda quarters: quarters / 4)
TRAJECTORY = st.fixed_dictionaries(
    {
        "group": st.integers(0, 5),
        "out": st.sampled_from([False, False, False, True]),
        "return": RETURNS,
        "entropy": POSITIVE,
        "length": POSITIVE,
    }
)
BATCH = st.lists(TRAJECTORY, max_size=30)
FRACTION = st.floats(0.01, 1.0)


def rule_of(strategy: str, value: float | None = None, options: dict | None = None, **keys) -> Rule:
    """A rule; `value` and `options` are options of the strategy where it reads them."""
    given = {**(options or {}), **({} if value is None else {"value": value})}
    return Rule(strategy, read_by(STRATEGIES[strategy].function, given), **keys)


@st.composite
def rules(draw: st.DrawFn, names: tuple[str, ...] = BUILT_IN) -> Rule:
    strategy = draw(st.sampled_from(names))
    low = draw(st.integers(0, 19)) * 5
    signed = ("mean", "sum")
    options = {
        "value": draw(st.integers(1, 7)) if strategy == "top_k_count" else draw(FRACTION),
        "range": (low, draw(st.integers(low // 5 + 1, 20)) * 5),
        "mass": draw(st.sampled_from(["linear", "softmax"])),
        "temperature": draw(st.sampled_from([0.1, 1.0, 10.0])),
        "slack": draw(st.sampled_from([0.0, 0.0, 0.01, 1.0])),
    }
    return rule_of(
        strategy,
        options=options,
        score=draw(st.sampled_from([name for name in REFERENCE if strategy != "min_p" or name not in signed])),
        largest=draw(st.booleans()),
        drop_zero_variance=draw(st.booleans()),
        total=draw(st.sampled_from([None, 3, 8])),
    )


def column(batch: list[dict], name: str) -> list:
    return [one[name] for one in batch]


def chosen(batch: list[dict], rule: Rule):
    return select(
        column(batch, "return"),
        column(batch, "group"),
        column(batch, "out"),
        rule=rule,
        measures={name: column(batch, name) for name in ("entropy", "length")},
    )


def near_tie(batch: list[dict], rule: Rule) -> bool:
    """Whether two ways of adding up could order two scores, or reach a share, differently by a last bit."""
    scores = sorted(one for one in chosen(batch, rule).scores.values() if math.isfinite(one))
    if any(0 < b - a < 1e-9 for a, b in pairwise(scores)):
        return True
    if rule.strategy == "min_p" and scores:
        value = rule.options["value"]
        edge = scores[-1] * value if rule.largest else scores[0] / value
        return any(abs(one - edge) < 1e-9 * max(1, abs(edge)) for one in scores)
    if rule.strategy == "top_p" and scores:
        ranked = np.array(sorted(scores, reverse=rule.largest))
        sign = 1 if rule.largest else -1
        if slack := rule.options["slack"]:
            threshold = rule.options["value"] * ranked.sum() - slack
            return bool((np.abs(np.cumsum([0, *ranked]) - threshold) < 1e-9).any())
        softmax, temperature = rule.options["mass"] == "softmax", rule.options["temperature"]
        mass = np.exp(sign * (ranked - ranked[0]) / temperature) if softmax else np.maximum(ranked, 0)
        shares = np.cumsum(mass) / max(mass.sum(), 1e-300)
        return bool((np.abs(shares - rule.options["value"]) < 1e-9).any())
    return False


@settings(deadline=None, max_examples=250)
@given(BATCH, rules())
def test_every_strategy_and_score_agrees_with_the_slow_way(batch: list, rule: Rule) -> None:
    assume(not near_tie(batch, rule))
    assert list(chosen(batch, rule).groups) == kept_groups(batch, rule)


@settings(deadline=None)
@given(BATCH, rules())
def test_a_selection_is_a_partition_without_the_excluded(batch: list, rule: Rule) -> None:
    found = chosen(batch, rule)
    assert sorted([*found.kept, *found.dropped]) == list(range(len(batch)))
    assert not any(batch[i]["out"] for i in found.kept)
    assert {batch[i]["group"] for i in found.kept} == set(found.groups)
    if rule.strategy != "within_group":  # whole groups or nothing
        for i, one in enumerate(batch):
            assert (i in found.kept) == (one["group"] in found.groups and not one["out"])


@settings(deadline=None)
@given(BATCH, rules())
def test_a_selection_is_empty_only_for_a_reason(batch: list, rule: Rule) -> None:
    counting = [one for one in batch if not one["out"]]
    returns = {one["group"]: {other["return"] for other in counting if other["group"] == one["group"]} for one in batch}
    assume(not rule.options.get("slack"))
    varied = any(len(found) > 1 for found in returns.values())
    assert bool(len(chosen(batch, rule).kept)) == (varied if rule.drop_zero_variance else bool(counting))


@settings(deadline=None)
@given(BATCH, rules(RANKING), st.randoms(use_true_random=False))
def test_order_of_trajectories_does_not_matter_but_for_ties(batch: list, rule: Rule, rng: random.Random) -> None:
    before = chosen(batch, rule)
    shuffled = list(batch)
    rng.shuffle(shuffled)
    after = chosen(shuffled, rule)
    assert after.scores == pytest.approx(before.scores)
    finite = [one for one in before.scores.values() if math.isfinite(one)]
    if len(set(np.round(finite, 9))) == len(finite) and finite and not near_tie(batch, rule):
        assert set(after.groups) == set(before.groups)


@settings(deadline=None)
@given(BATCH, rules(("top_k", "top_p", "top_k_count", "min_p")), st.integers(1, 7), FRACTION)
def test_more_is_kept_as_the_value_grows(batch: list, rule: Rule, count: int, fraction: float) -> None:
    other = count if rule.strategy == "top_k_count" else fraction
    low, high = sorted((rule.options["value"], other))
    few, many = (
        set(chosen(batch, replace(rule, options={**rule.options, "value": value})).groups) for value in (low, high)
    )
    # a share of the best score asks for more as it grows, and keeps less
    assert many <= few if rule.strategy == "min_p" else few <= many


@settings(deadline=None)
@given(BATCH, st.lists(st.integers(1, 19), max_size=4, unique=True), rules(("percentile",)))
def test_percentile_ranges_that_meet_cover_every_group_once(batch: list, cuts: list[int], rule: Rule) -> None:
    edges = [0, *sorted(5 * cut for cut in cuts), 100]
    parts = [chosen(batch, replace(rule, options={"range": part})).groups for part in pairwise(edges)]
    whole = chosen(batch, replace(rule, options={"range": (0, 100)})).groups
    assert set().union(*parts) == set(whole)
    if all((high - low) * len(whole) >= 100 for low, high in pairwise(edges)):
        assert sum(len(part) for part in parts) == len(whole)


@settings(deadline=None)
@given(st.lists(RETURNS, min_size=1, max_size=9), FRACTION)
def test_within_group_keeps_the_most_varied_trajectories(returns: list, fraction: float) -> None:
    kept = most_varied(np.array(returns), fraction)
    assert len(kept) == min(len(returns), max(2, keep_count(fraction, len(returns))))
    assert kept.tolist() == sorted(set(kept.tolist()))
    if len(kept) > 1:
        assert np.var([returns[i] for i in kept], ddof=1) == pytest.approx(largest_variance(returns, fraction))


def test_paper_setting_keeps_two_of_eight_groups() -> None:
    returns = [deviation * sign for deviation in range(8) for sign in (-1, 1)]
    groups = [label for label in "abcdefgh" for _ in range(2)]
    found = select(returns, groups, rule=rule_of("top_k", 0.25))
    assert found.groups == ("g", "h")
    assert found.kept.tolist() == [12, 13, 14, 15]


SOFT = {"mass": "softmax"}

# groups a, b, c, d with standard deviations 0, 1, 3, 6 (times the root of 2)
RETURNS_OF_FOUR = [0, 0, -1, 1, -3, 3, -6, 6]
LABELS = list("aabbccdd")


@pytest.mark.parametrize(
    ("rule", "groups"),
    [
        (rule_of("top_p", 0.6), "d"),  # 6 of 10
        (rule_of("top_p", 0.61), "cd"),
        (rule_of("top_p", 0.9), "cd"),  # 9 of 10, met exactly
        (rule_of("top_p", 0.91), "bcd"),
        (rule_of("top_p", 0.999), "bcd"),  # a group of equal returns has no mass
        (rule_of("top_p", 1.0), "abcd"),
        (rule_of("top_p", 0.9, score="variance"), "cd"),  # 36 of 46 is 0.78, 45 of 46 is 0.98
        (rule_of("top_p", 0.78, score="variance"), "d"),
        (rule_of("top_p", 0.9, options=SOFT), "d"),  # exp(8.5) / (exp(8.5) + exp(4.2) + ...) is 0.98
        (rule_of("top_p", 0.9, options=SOFT | {"temperature": 100.0}), "abcd"),  # nearly equal masses
        (rule_of("top_p", 0.1, largest=False), "ab"),  # 0 + 1 of 10, met exactly
        (rule_of("min_p", 0.5), "cd"),
        (rule_of("min_p", 0.51), "d"),
        (rule_of("min_p", 0.5, largest=False), "a"),
        (rule_of("min_p", 0.5, largest=False, drop_zero_variance=True), "b"),
        (rule_of("min_p", 0.33, largest=False, drop_zero_variance=True), "bc"),
        (rule_of("top_k_count", 3), "bcd"),
        (rule_of("top_k_count", 1, largest=False), "a"),
        (rule_of("percentile", options={"range": (0, 25)}), "d"),
        (rule_of("percentile", options={"range": (25, 75)}), "bc"),
        (rule_of("percentile", options={"range": (75, 100)}), "a"),
        (rule_of("percentile", options={"range": (0, 25)}, largest=False), "a"),
        (rule_of("percentile", options={"range": (40, 45)}), "c"),  # less than a group: the one its middle falls on
        (Rule(drop_zero_variance=True), "bcd"),
        (Rule(drop_zero_variance=True, limit=2), "bc"),
    ],
)
def test_strategies_by_hand(rule: Rule, groups: str) -> None:
    assert "".join(select(RETURNS_OF_FOUR, LABELS, rule=rule).groups) == groups


@pytest.mark.parametrize("strategy", RANKING)
@pytest.mark.parametrize("largest", [True, False])
def test_groups_without_variance_are_an_equal_choice(strategy: str, largest: bool) -> None:
    rule = rule_of(strategy, 2 if strategy == "top_k_count" else 0.5, options={"range": (0, 50)}, largest=largest)
    kept = select([1.0] * 8, LABELS, rule=rule).groups
    assert kept == (tuple("abcd") if strategy == "min_p" else ("a", "b"))


@pytest.mark.parametrize("strategy", BUILT_IN)
def test_dropping_zero_variance_can_leave_nothing(strategy: str) -> None:
    rule = rule_of(strategy, 0.5, drop_zero_variance=True)
    found = select([1.0] * 8, LABELS, rule=rule)
    assert found.groups == () and not len(found.kept)
    assert found.metrics["rollout/filter_kept_count"] == 0
    assert found.metrics["rollout/filter_zero_count"] == 4
    assert found.metrics["rollout/informative_ratio"] == 0


def test_scores_by_hand() -> None:
    returns, groups = [0.0, 1.0, 1.0, 5.0], ["a", "a", "a", "b"]
    measures = {"entropy": [0.5, 1.0, 1.5, 2.0], "length": [10, 20, 60, 7]}
    expected = {
        "std": (math.sqrt(1 / 3), -math.inf),
        "variance": (1 / 3, -math.inf),
        "mean": (2 / 3, 5.0),
        "sum": (2.0, 5.0),
        "entropy": (1.0, 2.0),
        "entropy_variance": (0.25, -math.inf),
        "length": (30.0, 7.0),
    }
    assert set(expected) == set(SCORES)
    for score, values in expected.items():
        found = select(returns, groups, rule=rule_of("top_k", 1.0, score=score), measures=measures)
        assert (found.scores["a"], found.scores["b"]) == pytest.approx(values), score


def test_within_a_group_the_extremes_stay() -> None:
    found = select([0.0, 5.0, 4.0, 10.0, 1.0, 1.0], ["a"] * 4 + ["b"] * 2, rule=rule_of("within_group", 0.5))
    assert found.kept.tolist() == [0, 3, 4, 5]
    assert found.groups == ("a", "b")
    # three of five: two low ones and the high one differ more than one low and two high ones
    assert most_varied(np.array([0.0, 1.0, 5.0, 8.0, 10.0]), 0.6).tolist() == [0, 1, 4]


def test_within_group_is_exact_where_returns_have_a_large_offset() -> None:
    assert most_varied(1e9 + np.array([0.0, 0.5, 0.6, 1.0]), 0.5).tolist() == [0, 3]


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_large_scores_do_not_overflow() -> None:
    huge = [-1e150, 1e150, -1e149, 1e149, 0, 0]
    assert select(huge, list("aabbcc"), rule=rule_of("top_p", 0.9, options=SOFT)).groups == ("a",)
    means = [1e308, 1e308, 1.0]
    assert select(means, list("abc"), rule=rule_of("top_p", 0.4, score="mean", min_trajectories=1)).groups == ("a",)


def test_negative_scores_have_no_mass() -> None:
    returns = [-4.0, -1.0, 2.0, 6.0]
    linear = select(returns, list("abcd"), rule=rule_of("top_p", 0.9, score="mean"))
    assert linear.groups == ("c", "d")
    softmax = select(
        returns, list("abcd"), rule=rule_of("top_p", 0.9, score="mean", options=SOFT | {"temperature": 50.0})
    )
    assert softmax.groups == ("a", "b", "c", "d")


def test_earlier_group_wins_a_tie() -> None:
    assert select([0, 1, 0, 1, 0, 1], ["z", "z", "a", "a", "m", "m"], rule=rule_of("top_k", 0.34)).groups == ("z",)


def test_equal_returns_have_no_standard_deviation() -> None:
    assert group_scores([0.1] * 7, [0] * 7).std[0] == 0.0
    assert select([0.1] * 7, [0] * 7).metrics["rollout/filter_zero_count"] == 1


def test_a_group_of_one_is_never_preferred_by_a_deviation() -> None:
    for score in DEVIATIONS:
        found = select(
            [5.0, 0.0, 0.0], ["alone", "pair", "pair"], rule=rule_of("top_k", 0.5, score=score),
            measures={"entropy": [9.0, 1.0, 1.0]},
        )  # fmt: skip
        assert found.groups == ("pair",)
        assert found.scores["alone"] == -math.inf


def test_released_slack_selects_fewer_groups_or_none() -> None:
    """RAGEN-2's code keeps groups while what is before them is below p times the sum, minus 0.01."""
    released = rule_of("top_p", 0.9, options={"slack": 0.01})
    # standard deviations 0.5, 0.0496 and 0.0003: nine tenths of the sum need two groups, and one less 0.01 does not
    returns = np.array([-0.5, 0.5, -0.0496, 0.0496, -0.0003, 0.0003]) / 2**0.5
    assert select(returns, list("aabbcc"), rule=rule_of("top_p", 0.91)).groups == ("a", "b")
    assert select(
        returns, list("aabbcc"), rule=replace(released, options=released.options | {"value": 0.91})
    ).groups == ("a",)
    # four groups of 0.002: nine tenths of their sum are less than 0.01
    small = select([0.0, 0.002 * 2**0.5] * 4, LABELS, rule=released)
    assert small.groups == ()
    assert len(select([0.0, 0.02] * 4, LABELS, rule=released).groups) == 3
    assert len(select([0.0, 0.02] * 4, LABELS, rule=replace(released, options={"value": 1.0})).groups) == 4


def test_softmax_is_strict_or_mild_by_the_unit_of_the_reward() -> None:
    groups = [label for label in "abcdefgh" for _ in range(2)]

    def count(deviations: list[float], **options: object) -> int:
        returns = [sign * deviation / 2**0.5 for deviation in deviations for sign in (-1, 1)]
        return len(select(returns, groups, rule=rule_of("top_p", 0.9, options=options)).groups)

    table6 = [5.6, 4.4, 4.2, 1.5, 0.2, 0.1, 0.0, 0.0]
    assert (count(table6, **SOFT), count(table6)) == (3, 4)
    binary = [0.5] * 4 + [0.25] * 2 + [0.0] * 2
    assert (count(binary, **SOFT), count(binary)) == (7, 5)


def test_single_members_are_kept_where_there_is_nothing_else() -> None:
    assert select([5.0, 1.0], ["a", "b"], rule=rule_of("top_k", 0.5)).groups == ("a",)
    assert select([5.0, 1.0], ["a", "b"], rule=Rule(min_trajectories=1)).groups == ("a", "b")
    assert select([1.0, 5.0], ["a", "b"], rule=rule_of("top_k", 0.5, score="mean")).groups == ("b",)


def test_a_group_reduced_to_one_trajectory_is_left_out() -> None:
    found = select([1.0, 2.0, 3.0, 4.0], ["a", "a", "b", "b"], [False, False, True, False])
    assert found.groups == ("a",)
    assert found.dropped.tolist() == [2, 3]


def test_nothing_is_selected_where_all_failed() -> None:
    found = select([1.0, 2.0], ["a", "a"], [True, True], rule=rule_of("top_k", 0.5))
    assert found.groups == () and not len(found.kept)
    assert found.metrics["rollout/filter_kept_ratio"] == 0
    assert not len(select([], [], rule=rule_of("top_p", 0.5)).kept)


def test_a_fraction_is_of_the_groups_of_a_step() -> None:
    groups = [label for label in range(12) for _ in range(2)]
    returns = [label * sign for label in range(12) for sign in (-1, 1)]
    found = select(returns, groups, rule=rule_of("top_k", 0.25, drop_zero_variance=True, total=8, limit=8))
    assert found.groups == (7, 8)  # 2 of 8, of the first eight that differ; a quarter of 12 would be 3


def test_fraction_does_not_lose_a_group_to_rounding() -> None:
    assert keep_count(0.29, 100) == 29  # 0.29 * 100 is 28.999999999999996
    assert keep_count(0.25, 8) == 2
    assert keep_count(0.1, 8) == 0


def test_metrics_have_ragens_names_and_values_of_raw_returns() -> None:
    lengths = {"length": [10, 30, 5, 5]}
    rule = rule_of("top_k", 0.5, score="length", largest=False)
    metrics = select([0.0, 2.0, 1.0, 1.0], ["a", "a", "b", "b"], rule=rule, measures=lengths).metrics
    assert metrics["rollout/in_group_std"] == metrics["rollout/in_group_reward_std"] == pytest.approx(math.sqrt(2) / 2)
    assert metrics["rollout/chosen_in_group_std"] == 0  # of the returns, whatever ranks the groups
    assert metrics["rollout/in_group_reward_max"] == metrics["rollout/in_group_max"] == 1.5
    assert metrics["rollout/chosen_in_group_reward_sum"] == 2.0
    assert metrics["rollout/chosen_in_group_mean"] == 1.0
    assert metrics["rollout/in_group_length_mean"] == 12.5
    assert metrics["rollout/chosen_in_group_length_mean"] == 5
    assert metrics["rollout/in_group_length_std"] == pytest.approx(math.sqrt(200) / 2)
    assert metrics["rollout/filter_kept_count"] == 1
    assert metrics["rollout/filter_kept_ratio"] == 0.5
    assert metrics["rollout/filter_zero_count"] == 1
    assert metrics["rollout/informative_ratio"] == 0.5


def test_batch_of_unequal_columns_or_a_bad_value_is_refused() -> None:
    with pytest.raises(ValueError, match="not one batch"):
        group_scores([1.0], [0, 1])
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="finite"):
            group_scores([bad], [0])
        with pytest.raises(ValueError, match="finite"):
            select([0.0], [0], measures={"length": [bad]})
        group_scores([bad], [0], [True])  # what failed may have any return
