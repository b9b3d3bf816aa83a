"""Countdown: instances, answers, rewards."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from itertools import permutations, product

import pytest
from environment_contract import TEXTS, check_contract, check_step
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_envs.common.tables import in_split
from ragen_envs.countdown import Countdown, _compute, _plus_minus_solves, _postfix, _solve, _tokens

from ragen_verl import make
from ragen_verl.errors import MissingExtra, RecipeError


def value(text: str) -> Fraction | None:
    return _compute(_postfix(_tokens(text)))


def game(target=24, numbers=(3, 5, 8, 1)) -> Countdown:
    env = Countdown()
    env.reset(seed=0)
    env.target, env.numbers, env._splits = target, numbers, []
    return env


def test_contract():
    check_contract("Countdown-v0")


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("(3 + 5) * (8 - 5)", 0.0),
        ("3 * 8 * (5 - 1 - 3)", 0.0),
        ("3 * (8 + 1 - 5) ", 0.1),
        ("8 * 3 * 1 * 5", 0.1),
        ("8*3/(1*5)", 0.1),
        ("5 * (8 - 3) - 1", 1.0),
        ("-1 + 5×(8−3)", 1.0),
        ("8 - 3 * 1", 0.0),
        ("8 / (5 - 3 - 1 - 1)", 0.0),
        ("1 / (8 - 5 - 3)", 0.1),
        ("24", 0.0),
    ],
)
def test_rewards(answer, reward):
    step = check_step(game(), answer)
    assert step.reward == reward and step.terminated
    assert step.info["success"] == (reward == 1.0) and step.info["action_is_effective"] == (reward > 0)


@pytest.mark.parametrize(
    "answer",
    ["", "3 5", "(3 + 5", "3 + 5)", "()", "3 +", "* 3", "3 ** 5", "3 // 5", "3 = 3", "+3", "3(5)", "x + 3", "3.5 + 1"],
)
def test_what_is_no_expression_changes_nothing(answer):
    step = check_step(game(), answer)
    assert not step.info["action_is_valid"] and not step.terminated


TREES = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: (
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | st.tuples(inner, st.sampled_from("+-*/"), inner).map(" ".join)
        | inner.map("-{}".format)
        | inner.map("({})".format)
    ),
    max_leaves=8,
)


@given(TREES)
@settings(max_examples=300, deadline=None)
def test_value_is_the_one_of_exact_python_arithmetic(text):
    # the test may evaluate its own text: numbers as fractions, so that division is exact
    import re

    exact = re.sub(r"([0-9]+)", r"Fraction(\1)", text)
    try:
        wanted = eval(exact, {"Fraction": Fraction})
    except ZeroDivisionError:
        wanted = None
    assert value(text) == wanted


@given(st.lists(TEXTS, max_size=3))
@settings(max_examples=150, deadline=None)
def test_hostile_text(actions):
    env = game()
    for action in actions:
        check_step(env, action)


@given(
    seed=st.integers(0, 2**31),
    counts=st.tuples(st.integers(2, 6), st.integers(2, 6)).map(sorted),
    largest=st.integers(20, 200),
    split=st.sampled_from(["train", "val", None]),
)
@settings(max_examples=150, deadline=None)
def test_every_instance_is_solvable_and_as_asked(seed, counts, largest, split):
    env = Countdown(numbers=tuple(counts), largest=largest, split=split)
    env.reset(seed=seed)
    assert counts[0] <= len(env.numbers) <= counts[1]
    assert all(1 <= number <= largest for number in env.numbers)
    assert env.targets[0] <= env.target <= env.targets[1]
    assert in_split(f"{env.target} {sorted(env.numbers)}", split)
    step = env.step(env.oracle()[0])
    assert step.reward == 1.0 and step.info["success"]


def test_the_solver_agrees_with_brute_force():
    shapes = ["{0}{3}{1}{4}{2}", "({0}{3}{1}){4}{2}", "{0}{3}({1}{4}{2})"]
    for numbers in [(1, 2, 3), (5, 5, 2), (4, 9, 7)]:
        reachable = {
            value(shape.format(*order, *signs))
            for shape in shapes
            for order in permutations(numbers)
            for signs in product("+-*/", repeat=2)
        }
        for target in range(1, 70):
            found = _solve(tuple((Fraction(number), str(number)) for number in numbers), Fraction(target))
            assert (found is not None) == (target in reachable)
            assert found is None or value(found) == target


def test_seeds_differ_and_splits_share_nothing():
    drawn = {}
    for split in (None, "train", "val"):
        env = Countdown(split=split)
        drawn[split] = set()
        for seed in range(500):
            env.reset(seed=seed)
            drawn[split].add((env.target, tuple(sorted(env.numbers))))
    assert all(len(instances) > 490 for instances in drawn.values())
    assert not drawn["train"] & drawn["val"]


def test_too_few_instances_for_a_split_end_with_a_message():
    env = Countdown(numbers=(2, 2), largest=5, targets=(10, 10), split="val")
    with pytest.raises(RecipeError, match="'val'"):
        env.reset(seed=0)


@pytest.fixture
def table(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = [{"target": 20 + k, "nums": [k + 1, 19, 1] if k % 2 else [10, k + 10]} for k in range(60)]
    rows += [{"target": 20 + k, "nums": [k + 10, 10]} for k in range(0, 60, 2)]  # the same in another order
    path = str(tmp_path / "countdown.parquet")
    datasets.Dataset.from_list(rows).to_parquet(path)
    return path


def test_dataset_rows_by_seed(table):
    env = make("Countdown-v0", dataset=table)
    seen = {env.reset(seed=seed)[0] for seed in range(60)}
    assert len(seen) == 60 and "Target: 21, numbers: [2, 19, 1]" in seen
    env.reset(seed=4)
    assert env.step(env.oracle()[0]).reward == 1.0
    check_contract("Countdown-v0", dataset=table)


def test_dataset_splits_share_no_instance(table):
    instances = {}
    for split in ("train", "val"):
        env = Countdown(dataset=table, split=split)
        seen = set()
        for seed in range(len(env._table)):
            env.reset(seed=seed)
            seen.add((env.target, tuple(sorted(env.numbers))))
        instances[split] = seen
    assert instances["train"] and instances["val"] and not instances["train"] & instances["val"]
    assert len(instances["train"] | instances["val"]) == 60


def test_released_rows_are_the_first_that_plus_and_minus_solve(tmp_path):
    import datasets

    rows = [{"target": 12, "nums": [10, 5, 3]}, {"target": 50, "nums": [10, 5, 3]}, {"target": 2, "nums": [10, 5, 3]}]
    rows += [{"target": 8, "nums": [10, 5, 3]}]
    path = str(tmp_path / "rows.parquet")
    datasets.Dataset.from_list(rows).to_parquet(path)

    def targets(**kwargs) -> set[int]:
        env = Countdown(dataset=path, **kwargs)
        env.reset(seed=0)
        assert len(copy.deepcopy(env)._table) == len(pickle.loads(pickle.dumps(env))._table) == len(env._table)
        return {env._table[number]["target"] for number in range(len(env._table))}

    assert targets() == {12, 50, 2, 8}
    assert targets(plus_minus=True) == {12, 2, 8}
    assert targets(plus_minus=True, rows=2) == {12}
    signs = [sum(sign * n for sign, n in zip(way, (10, 5, 3), strict=True)) for way in product((1, -1), repeat=3)]
    assert {target for target in range(-20, 20) if _plus_minus_solves(target, [10, 5, 3])} == set(signs)


def test_missing_datasets_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(MissingExtra, match="pip install datasets"):
        Countdown(dataset="Jiayi-Pan/Countdown-Tasks-3to4")


@pytest.mark.parametrize(
    "kwargs",
    [
        {"numbers": (1, 3)},
        {"numbers": 3},
        {"largest": 4},
        {"largest": 9.5},
        {"targets": (50, 20)},
        {"targets": (10, 500)},
        {"split": "test"},
        {"dataset": "x.csv", "largest": 10},
        {"rows": 10},
        {"plus_minus": True},
        {"dataset": "x.csv", "rows": 0},
    ],
)
def test_bad_arguments(kwargs):
    with pytest.raises(RecipeError, match=list(kwargs)[-1]):
        Countdown(**kwargs)
