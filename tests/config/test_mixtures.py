"""Mixtures and curricula: how groups are dealt, what a schedule changes, what is refused, what a resume restores."""

from __future__ import annotations

import copy
import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from recipe_composition import composed
from refusals import refused
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.utils.dataset.rl_dataset import collate_fn

from ragen_verl.config import RagenConfig
from ragen_verl.config.mixture import deal
from ragen_verl.errors import RecipeError
from ragen_verl.resolvers import register_resolvers
from ragen_verl.rollout.metrics import summarize
from ragen_verl.training.dataset import EnvDataset
from ragen_verl.validation.recipe import check

LAKE = {
    "id": "FrozenLake-v0",
    "weight": 2,
    "kwargs": {"size": 4, "success_rate": 1.0},
    "schedule": [{"step": 3, "weight": 1.0}, {"step": 5, "kwargs": {"size": 5}}, {"step": 7, "weight": 0}],
}
BLOCK = {
    "train": {"groups": 6, "envs": [LAKE, {"id": "Bandit-v0", "weight": 1}], "seed": 1000},
    "val": {"envs": [{"id": "Bandit-v0", "groups": 2}, {"id": "FrozenLake-v0", "groups": 1}], "seed": 10},
    "generalisation": {"envs": [{"id": "BanditRev-v0", "groups": 3}], "seed": 20},
    "run": {"dir": "unused"},
}


def block(**changes: object) -> dict:
    """The block above; `train__envs__0__weight=5` replaces a value, and `...` deletes it."""
    data = copy.deepcopy(BLOCK)
    for path, value in changes.items():
        *parents, last = (int(key) if key.isdigit() else key for key in path.split("__"))
        node = data
        for key in parents:
            node = node[key]
        if value is ...:
            del node[last]
        else:
            node[last] = value
    return data


def read(**changes: object) -> RagenConfig:
    return RagenConfig.from_omegaconf(block(**changes))


def dataset(path: str, **changes: object) -> EnvDataset:
    return EnvDataset(path, tokenizer=None, config=OmegaConf.create({"ragen": block(**changes)}))


# -- dealing ----------------------------------------------------------------------------------------------------------

WEIGHTS = st.lists(st.floats(0, 1e6) | st.integers(0, 9), min_size=1, max_size=6).filter(any).map(tuple)


@given(WEIGHTS, st.integers(1, 40), st.integers(1, 10**6))
def test_each_environment_gets_its_quota_rounded_up_or_down(weights: tuple, groups: int, step: int) -> None:
    dealt = deal(weights, groups, step)
    assert len(dealt) == groups and list(dealt) == sorted(dealt)
    counts = Counter(dealt)
    total = sum(map(Fraction, weights))
    for i, weight in enumerate(weights):
        quota = groups * Fraction(weight) / total
        assert math.floor(quota) <= counts[i] <= math.ceil(quota)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6).map(tuple), st.integers(1, 10**6))
def test_groups_are_weights_whose_quotas_are_met_in_every_step(groups: tuple, step: int) -> None:
    assert deal(groups, sum(groups), step) == tuple(i for i, count in enumerate(groups) for _ in range(count))


@settings(deadline=None)
@given(WEIGHTS, st.integers(1, 12), st.integers(1, 100))
def test_shares_of_a_run_are_those_of_the_weights(weights: tuple, groups: int, steps: int) -> None:
    played = Counter(env for step in range(1, steps + 1) for env in deal(weights, groups, step))
    for i, weight in enumerate(weights):
        assert abs(played[i] - steps * groups * Fraction(weight) / sum(map(Fraction, weights))) < 5


def test_less_than_a_group_a_step_comes_round_evenly() -> None:
    plays = [step for step in range(1, 200) if 1 in deal((31, 1), 16, step)]  # half a group a step
    assert {later - earlier for earlier, later in pairwise(plays)} <= {1, 2, 3}


# -- curricula --------------------------------------------------------------------------------------------------------


def test_schedule_changes_weight_and_arguments_from_its_steps_on() -> None:
    rows = [dataset("env://train")[index]["extra_info"] for index in range(6 * 8)]
    steps = [rows[start : start + 6] for start in range(0, 48, 6)]
    assert [sum(row["name"] == "FrozenLake" for row in step) for step in steps] == [4, 4, 3, 3, 3, 3, 0, 0]
    sizes = [{row["kwargs"]["size"] for row in step if row["name"] == "FrozenLake"} for step in steps]
    assert sizes == [{4}, {4}, {4}, {4}, {5}, {5}, set(), set()]
    assert all(row["kwargs"]["success_rate"] == 1.0 for row in rows if row["name"] == "FrozenLake")
    assert [row["seed"] for row in rows] == list(range(1000, 1048))


def test_arguments_can_change_where_groups_are_counted() -> None:
    lake = {"id": "FrozenLake-v0", "groups": 2, "schedule": [{"step": 2, "kwargs": {"size": 5}}]}
    rows = dataset("env://train", train__envs=[lake], train__groups=...)
    assert [rows[index]["extra_info"]["kwargs"] for index in range(4)] == [{}, {}, {"size": 5}, {"size": 5}]


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 12), st.sampled_from([1, 6]))
def test_resumed_data_loader_goes_on_with_the_same_groups(batches: int, batch_size: int) -> None:
    def loader() -> StatefulDataLoader:
        return StatefulDataLoader(
            dataset("env://train"), batch_size=batch_size, num_workers=0, drop_last=True, collate_fn=collate_fn
        )

    def draw(iterator, count: int) -> list:
        return [row for _ in range(count) for row in next(iterator)["extra_info"].tolist()]

    straight = loader()
    iterator = iter(straight)
    draw(iterator, batches)
    state = copy.deepcopy(straight.state_dict())  # what verl writes to data.pt
    resumed = loader()
    resumed.load_state_dict(state)
    assert draw(iter(resumed), 8) == draw(iterator, 8)


# -- held-out splits --------------------------------------------------------------------------------------------------


def test_generalisation_has_seeds_of_its_own() -> None:
    val = dataset("env://val")
    rows = [val[index] for index in range(len(val))]
    assert [row["extra_info"]["seed"] for row in rows] == [10, 11, 12, 20, 21, 22]
    assert [row["extra_info"]["name"] for row in rows] == ["Bandit"] * 2 + ["FrozenLake"] + ["BanditRev"] * 3
    assert [row["data_source"] for row in rows[2:4]] == ["FrozenLake", "generalisation/BanditRev"]
    assert [row["extra_info"]["split"] for row in rows] == ["val"] * 3 + ["generalisation"] * 3


def test_a_recipe_without_generalisation_has_validation_only() -> None:
    assert len(dataset("env://val", generalisation=None)) == 3
    assert list(read(generalisation=None).splits) == ["train", "val"]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.integers(1, 5), st.integers(0, 6))
def test_splits_are_refused_exactly_where_seeds_overlap(
    train: int, val: int, generalisation: int, steps: int, more: int
) -> None:
    sampling = {"on_empty": "dynamic_sampling", "dynamic_sampling_limit": more} if more else {}
    seeds = {"train__seed": train, "val__seed": val, "generalisation__seed": generalisation}
    config = RagenConfig.from_omegaconf(block(**seeds) | {"filter": sampling})
    drawn = steps * (6 + more)
    rows = dataset("env://train", train__seed=train)
    held = dataset("env://val", val__seed=val, generalisation__seed=generalisation)
    played = [rows[i]["extra_info"]["seed"] for i in range(drawn)]
    played += [held[i]["extra_info"]["seed"] for i in range(len(held))]
    if len(set(played)) == len(played):
        config.check_seeds(steps)
    else:
        with pytest.raises(RecipeError, match="do not overlap") as refusal:
            config.check_seeds(steps)
        assert "\n" not in str(refusal.value)


def test_overlap_is_refused_with_the_numbers() -> None:
    with pytest.raises(RecipeError, match=r"ragen\.val would play the seeds 10 to 12 and ragen\.generalisation 12 to"):
        read(generalisation__seed=12).check_seeds(1)
    with pytest.raises(RecipeError, match=r"1000 to 1017 .3 steps of 6 groups. and ragen\.generalisation 1017 to 1019"):
        read(generalisation__seed=1017).check_seeds(3)
    read(generalisation__seed=1018).check_seeds(3)


# -- refusals ---------------------------------------------------------------------------------------------------------

ENVS = "train__envs"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train__groups": ...}, "ragen.train.groups is missing: with weights"),
        ({f"{ENVS}__0__groups": 3}, "ragen.train.envs[0] has both groups and a weight"),
        ({f"{ENVS}__1__weight": ...}, "ragen.train.envs[1] has neither groups nor a weight"),
        ({f"{ENVS}__1": {"id": "Bandit-v0", "groups": 2}}, "has some groups and some weights"),
        ({f"{ENVS}__0__weight": -1}, "ragen.train.envs[0].weight is -1.0 but has to be a number of 0 or more"),
        ({f"{ENVS}__0__weight": math.inf}, "a number of 0 or more"),
        ({f"{ENVS}__0__weight": math.nan}, "a number of 0 or more"),
        ({f"{ENVS}__0__weight": "2"}, "a number of 0 or more"),
        ({f"{ENVS}__1__weight": 0}, "ragen.train.envs[1].weight is never above 0"),
        ({f"{ENVS}__1__schedule": [{"step": 7, "weight": 0}]}, "no weight above 0 in step 7"),
        ({f"{ENVS}__0__schedule__0__step": 1}, "schedule[0].step is 1 but has to be a number of 2 or more"),
        ({f"{ENVS}__0__schedule__0__step": 5}, "has step 5 after step 5: put its steps in order"),
        ({f"{ENVS}__0__schedule__0__weight": ...}, "ragen.train.envs[0].schedule[0] changes nothing"),
        ({f"{ENVS}__0__schedule__0__wieght": 1}, "did you mean weight?"),
        ({f"{ENVS}__0__schedule": {"step": 2}}, "has to be a list"),
        ({"val__envs__0__schedule": [{"step": 2, "kwargs": {"low": "a"}}]}, "ragen.val.envs[0].schedule would change"),
        ({"generalisation__envs__0__schedule": [{"step": 2, "kwargs": {"low": "a"}}]}, "ragen.generalisation.envs[0]"),
        ({"val__groups": 7}, "ragen.val.groups is 7 but its environments have 3"),
        ({"generalisation__seed": ...}, "ragen.generalisation.seed is missing"),
        ({"generalisation": [1]}, "ragen.generalisation is [1] but has to be a block of keys"),
        (
            {ENVS: [{"id": "Bandit-v0", "groups": 1, "schedule": [{"step": 2, "weight": 3}]}], "train__groups": ...},
            "schedule[0].weight is 3 but the environment has groups",
        ),
    ],
)
def test_wrong_mixture_is_refused_in_one_sentence(changes: dict, words: str) -> None:
    with refused(words):
        read(**changes)


def test_a_group_count_that_agrees_is_no_contradiction() -> None:
    assert read(val__groups=3).val.groups == 3


@pytest.fixture(scope="module")
def recipe():
    """A nano recipe with the mixture above."""
    config = composed("nano/frozen_lake")
    config.ragen.train = copy.deepcopy(BLOCK["train"])
    config.ragen.generalisation = copy.deepcopy(BLOCK["generalisation"])
    config.actor_rollout_ref.actor.ppo_mini_batch_size = 3
    config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu = 8
    check(config)
    return config


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": 9, "kwargs": {"siez": 5}}, "ragen.train.envs[0].schedule[3]: FrozenLake-v0 does not take 'siez'"),
        ({"step": 9, "kwargs": {"size": -4}}, "ragen.train.envs[0].schedule[3]"),
    ],
)
def test_stage_that_cannot_be_built_is_refused_before_the_run(recipe, change: dict, words: str) -> None:
    config = copy.deepcopy(recipe)
    config.ragen.train.envs[0].schedule.append(change)
    with pytest.raises(RecipeError) as refusal:
        check(config)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_batch_size_follows_from_groups_and_weights(recipe) -> None:
    assert recipe.data.train_batch_size == 6
    register_resolvers()
    config = OmegaConf.create({"ragen": block(), "val": "${ragen_groups:${ragen.val}}"})
    assert config.val == 3


# -- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "tag"),
    [
        ("gymnasium:Taxi-v3", "Taxi"),
        ("http://127.0.0.1:8000/FrozenLake-v0", "FrozenLake"),
        ("http://127.0.0.1:8000/FrozenLake-v0/", "FrozenLake"),
        ("Bandit-v0", "Bandit"),
    ],
)
def test_name_in_the_metrics_has_no_slash_and_no_version(id: str, tag: str) -> None:
    config = read(train__envs=[{"id": id, "groups": 1}], train__groups=...)
    assert config.train.envs[0].tag == tag


def test_metrics_say_how_much_each_environment_has_of_a_step() -> None:
    def record(env: str, seed: int, kept: bool) -> dict:
        numbers = {"success": 0.0}
        return {
            "env_id": f"{env}-v0", "env": env, "seed": seed, "kept": kept, "excluded": False,
            "stop_reason": "terminated", "metrics": numbers,
        }  # fmt: skip

    records = [record("A", 1, True), record("A", 1, True), record("A", 2, False), record("B", 3, False)]
    metrics = summarize(records, "train")
    assert (metrics["train/A/groups"], metrics["train/B/groups"]) == (2, 1)
    assert metrics["train/A/kept_ratio"] == pytest.approx(2 / 3)
    assert metrics["train/B/kept_ratio"] == 0
    held_out = summarize([{key: one[key] for key in one if key != "kept"} for one in records], "val-env")
    assert "val-env/A/kept_ratio" not in held_out
