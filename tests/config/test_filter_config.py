"""`ragen.filter` as a recipe writes it: every strategy takes its own values, and a key without a use is refused."""

from __future__ import annotations

import pytest
from refusals import refused

from ragen_verl.config import RagenConfig
from ragen_verl.errors import RecipeError
from ragen_verl.validation.filter import check_groups

P, N = 8, 4


def read(**keys: object) -> RagenConfig:
    return RagenConfig.from_omegaconf(
        {
            "train": {"envs": [{"id": "FrozenLake-v0", "groups": P}], "seed": 1000},
            "val": {"envs": [{"id": "FrozenLake-v0", "groups": 4}], "seed": 1},
            "run": {"dir": "unused"},
            "filter": keys,
        }
    )


LEGAL = {
    "none": {},
    "top_k": {"value": 0.25},
    "top_k_count": {"value": 3},
    "top_p": {"value": 0.9, "mass": "softmax", "temperature": 0.5},
    "min_p": {"value": 0.2},
    "percentile": {"range": [0, 25]},
    "within_group": {"value": 0.5},
}


@pytest.mark.parametrize("strategy", LEGAL)
def test_every_strategy_is_read_and_makes_its_rule(strategy: str) -> None:
    wanted = {key: tuple(value) if key == "range" else value for key, value in LEGAL[strategy].items()}
    config = read(strategy=strategy, **LEGAL[strategy])
    check_groups(config, N)
    rule = config.filter.rule(P, N)
    assert rule.strategy == strategy and rule.total == P
    assert rule.options == {**({"slack": 0.0} if strategy == "top_p" else {}), **wanted}
    assert (rule.score, rule.largest, rule.drop_zero_variance, rule.limit) == ("std", True, False, None)


@pytest.mark.parametrize(("strategy", "value"), [("top_k", 0.25), ("top_p", 0.9), ("within_group", 0.5)])
def test_null_stands_for_the_papers_value(strategy: str, value: float) -> None:
    assert read(strategy=strategy).filter.rule(P, N).options["value"] == value


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"strategy": "top_k", "value": 0}, "above 0 and at most 1 or null"),
        ({"strategy": "top_k", "value": 2}, "(filter strategy top_k)"),
        ({"strategy": "top_k_count"}, "ragen.filter.value is missing"),
        ({"strategy": "top_k_count", "value": 0.25}, "has to be a whole number"),
        ({"strategy": "top_k_count", "value": 0}, "a whole number of 1 or more"),
        ({"strategy": "top_p", "value": -0.1}, "above 0"),
        ({"strategy": "min_p"}, "ragen.filter.value is missing: filter strategy min_p needs it"),
        ({"strategy": "min_p", "value": 1.1}, "at most 1"),
        ({"strategy": "within_group", "value": 2}, "at most 1"),
        ({"strategy": "percentile", "value": 0.3}, "ragen.filter.value is 0.3"),
        ({"strategy": "percentile"}, "ragen.filter.range is missing"),
        ({"strategy": "percentile", "range": [25]}, "such as [0, 25]"),
        ({"strategy": "percentile", "range": [50, 25]}, "lower one first"),
        ({"strategy": "percentile", "range": [0, 101]}, "0 to 100"),
        ({"strategy": "top_k", "range": [0, 25]}, "to percentile"),
        ({"value": 0.5}, "would do nothing"),
        ({"score": "std"}, "ragen.filter.score is 'std' but ragen.filter.strategy is none"),
        ({"strategy": "within_group", "largest": True}, "would do nothing"),
        ({"strategy": "within_group", "score": "mean"}, "would do nothing"),
        ({"strategy": "top_k", "mass": "linear"}, "to top_p"),
        ({"strategy": "top_p", "temperature": 2.0}, "to softmax"),
        ({"strategy": "top_p", "mass": "linear", "temperature": 2.0}, "to softmax"),
        ({"strategy": "top_p", "mass": "softmax", "temperature": 0}, "above 0"),
        ({"strategy": "min_p", "value": 0.5, "score": "mean"}, "can be negative"),
        ({"strategy": "top_k", "score": "stdev"}, "which is no filter score: did you mean std?"),
        ({"strategy": "topk"}, "which is no filter strategy: did you mean top_k?"),
        ({"loss_scaling": "linear"}, "set it to none"),
        ({"loss_scaling": "cubic"}, "one of none, linear, sqrt"),
        ({"updates": "fixed"}, "proportional, constant"),
        ({"zero_variance": "dropp"}, "keep, drop"),
        ({"on_empty": "stop"}, "zero_variance to drop"),
        ({"on_empty": "dynamic_sampling", "zero_variance": "keep"}, "set it to drop or null"),
        ({"dynamic_sampling_groups": 4}, "to dynamic_sampling"),
        ({"dynamic_sampling_limit": 4}, "to dynamic_sampling"),
        ({"on_empty": "dynamic_sampling", "dynamic_sampling_limit": 0}, "1 or more"),
        ({"stop_after": 3}, "to stop or dynamic_sampling"),
        ({"strategy": "top_k", "slack": 0.01}, "to top_p"),
        ({"strategy": "top_p", "mass": "softmax", "slack": 0.01}, "ragen.filter.mass to linear"),
        ({"strategy": "top_p", "slack": -1}, "0 or more"),
        ({"strategy": "top_p", "mass": "log"}, "one of linear, softmax"),
        ({"cross_fit": True}, "nothing is filtered"),
        ({"cross_fit": True, "strategy": "within_group"}, "chooses single trajectories"),
        ({"cross_fit": True, "strategy": "top_k", "on_empty": "dynamic_sampling"}, "until whole groups differ"),
        ({"strategy": "top_k", "scor": "mean"}, "did you mean score?"),
        ({"strategy": "top_k", "vale": 1}, "did you mean value?"),
    ],
)
def test_value_of_another_strategy_or_without_a_use_is_refused(keys: dict, words: str) -> None:
    with refused(words):
        read(**keys)


def test_groups_of_one_have_no_spread_to_decide_by() -> None:
    for keys in (
        {"strategy": "top_k"},
        {"strategy": "top_p", "score": "entropy_variance"},
        {"strategy": "within_group"},
        {"zero_variance": "drop"},
        {"on_empty": "dynamic_sampling"},
    ):
        with pytest.raises(RecipeError, match=r"rollout\.n is 1"):
            check_groups(read(**keys), 1)
        check_groups(read(**keys), 2)
    for score in ("mean", "sum", "entropy", "length"):
        check_groups(read(strategy="top_k", score=score), 1)


def test_a_filter_keeps_between_one_group_and_all() -> None:
    with pytest.raises(RecipeError, match=r"less than one group: use 0\.125"):
        check_groups(read(strategy="top_k", value=0.12), N)
    with pytest.raises(RecipeError, match="a step has 8 groups"):
        check_groups(read(strategy="top_k_count", value=9), N)
    check_groups(read(strategy="top_k_count", value=8), N)


def test_dynamic_sampling_is_bounded_by_the_recipe() -> None:
    config = read(on_empty="dynamic_sampling")
    assert (config.filter.target(P), config.filter.extra_groups(P)) == (P, P)
    assert config.filter.rule(P, N).limit == P and config.filter.rule(P, N).drop_zero_variance
    with pytest.raises(RecipeError, match="a step generates 10 groups at most"):
        check_groups(read(on_empty="dynamic_sampling", dynamic_sampling_groups=11, dynamic_sampling_limit=2), N)
    assert read().filter.extra_groups(P) == 0


def test_seeds_of_dynamic_sampling_may_not_reach_validation() -> None:
    keys = {"on_empty": "dynamic_sampling", "dynamic_sampling_limit": 12}
    config = RagenConfig.from_omegaconf(
        {
            "train": {"envs": [{"id": "FrozenLake-v0", "groups": P}], "seed": 0},
            "val": {"envs": [{"id": "FrozenLake-v0", "groups": 4}], "seed": 40},
            "run": {"dir": "unused"},
            "filter": keys,
        }
    )
    config.check_seeds(2)  # 2 steps of 20 groups at most
    with pytest.raises(RecipeError, match=r"0 to 59 .3 steps of 20 groups. and ragen.val 40"):
        config.check_seeds(3)


def test_a_run_ends_after_the_stated_number_of_empty_steps() -> None:
    assert read(zero_variance="drop").filter.empty_limit is None
    assert read(zero_variance="drop", on_empty="stop").filter.empty_limit == 5
    assert read(zero_variance="drop", on_empty="stop", stop_after=2).filter.empty_limit == 2
    assert read(on_empty="dynamic_sampling").filter.empty_limit is None
    assert read(on_empty="dynamic_sampling", stop_after=3).filter.empty_limit == 3
