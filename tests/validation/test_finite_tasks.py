"""Finite environments: every task once in a held-out split, none in two splits, near-copies named."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen_verl import Env
from ragen_verl.config.envs import EnvGroups, Split
from ragen_verl.errors import RecipeError
from ragen_verl.validation.tasks import check_tasks


class Table(Env):
    """Tasks `first` to `first + count - 1`; a task's solution is its number modulo `gold`."""

    def __init__(self, count: int, first: int = 0, gold: int = 1000) -> None:
        self.tasks, self.first, self.gold = count, first, gold

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.render(), {}

    def render(self) -> str:
        return self.task_key(self.task)

    def task_key(self, task: int) -> str:
        return f"task {self.first + task}"

    def task_gold(self, task: int) -> str:
        return str((self.first + task) % self.gold)


class Endless(Env):
    pass


def check(**splits: tuple[int, list[tuple[int, Env]]]) -> None:
    """Each split: the first seed, and (groups, environment) in order."""
    made = {
        name: Split(tuple(EnvGroups(f"E{i}-v0", groups) for i, (groups, _) in enumerate(envs)), seed)
        for name, (seed, envs) in splits.items()
    }
    check_tasks(made, {name: [env for _, env in envs] for name, (_, envs) in splits.items()})


def test_a_task_is_chosen_by_number_or_by_seed() -> None:
    env = Table(7)
    assert [env.reset(seed=seed)[0] for seed in (3, 10)] == ["task 3", "task 3"]
    assert env.reset(seed=3, options={"task": 5})[0] == "task 5" and env.task == 5
    for bad in (7, -1, True, "1", 1.0):
        with pytest.raises(RecipeError, match="from 0 to 6"):
            env.reset(seed=3, options={"task": bad})
    endless = Endless()
    endless.reset(seed=3)
    assert endless.tasks is endless.task is endless.task_gold(0) is None


def test_a_held_out_split_larger_than_its_tasks_is_refused() -> None:
    check(train=(0, [(4, Endless())]), val=(100, [(7, Table(7))]))
    with pytest.raises(RecipeError, match=r"ragen.val.envs\[1\] has 8 groups of E1-v0, which has 7 tasks"):
        check(train=(0, [(4, Endless())]), val=(100, [(3, Endless()), (8, Table(7))]))


@given(st.integers(0, 999), st.integers(1, 30), st.integers(0, 5), st.data())
def test_a_held_out_split_plays_each_task_once(seed, tasks, before, data) -> None:
    groups = data.draw(st.integers(1, tasks))
    env = Table(tasks)
    envs = [(before, Endless())] * (before > 0) + [(groups, env)]
    check(train=(0, [(1, Endless())]), val=(seed, envs))
    split = Split(tuple(EnvGroups(f"E{i}-v0", count) for i, (count, _) in enumerate(envs)), seed)
    last = f"E{len(envs) - 1}-v0"
    played = [env.reset(seed=split.seed + place)[0] for place in range(split.groups) if split.env_of(place).id == last]
    assert len(played) == len(set(played)) == groups


def test_two_splits_that_share_a_task_are_refused() -> None:
    check(train=(0, [(4, Table(20))]), val=(100, [(5, Table(9, first=20))]))
    with pytest.raises(RecipeError, match=r"ragen.train and ragen.val share 1 tasks \(such as task 19\)"):
        check(train=(0, [(4, Table(20))]), val=(9, [(9, Table(9, first=19))]))
    with pytest.raises(RecipeError, match=r"ragen.val and ragen.generalisation share"):
        check(train=(0, [(4, Endless())]), val=(0, [(5, Table(9))]), generalisation=(14, [(1, Table(5))]))
    # the same table, but other tasks of it
    check(train=(0, [(4, Endless())]), val=(0, [(5, Table(9))]), generalisation=(5, [(4, Table(9))]))


def test_near_copies_are_named(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        check(train=(0, [(4, Table(20, gold=100))]), val=(0, [(5, Table(5, first=110, gold=100))]))
    [record] = caplog.records
    assert "5 tasks of ragen.train" in record.getMessage() and "task 10" in record.getMessage()


@given(st.integers(1, 24), st.integers(1, 24), st.integers(1, 24))
def test_training_that_never_comes_to_a_task_is_refused(mine, others, tasks) -> None:
    played = {
        (step * (mine + others) + place) % tasks for step in range(tasks) for place in range(others, others + mine)
    }
    envs = [(others, Endless()), (mine, Table(tasks))]
    if len(played) == tasks:
        check(train=(0, envs), val=(0, [(1, Endless())]))
    else:
        with pytest.raises(RecipeError, match="never comes to some"):
            check(train=(0, envs), val=(0, [(1, Endless())]))
