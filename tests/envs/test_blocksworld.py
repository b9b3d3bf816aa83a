"""Blocksworld: rules, and plans that are shortest or close."""

from __future__ import annotations

from collections import deque

import pytest
from environment_contract import check_contract, check_step, play_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_envs import blocksworld
from ragen_envs.blocksworld import TABLE, Blocksworld, after, moves

from ragen_verl import make
from ragen_verl.errors import RecipeError


def stacks(below: tuple[int, ...], goal: tuple[int, ...]) -> Blocksworld:
    env = Blocksworld(blocks=len(below))
    env.reset(seed=0)
    env.below, env.goal = below, goal
    return env


def everything(blocks: int) -> dict[tuple[int, ...], dict[tuple[int, ...], int]]:
    """Moves between any two states."""
    origin = (TABLE,) * blocks
    reach = distances(origin)
    return {state: distances(state) for state in reach}


def distances(start: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    found, queue = {start: 0}, deque([start])
    while queue:
        state = queue.popleft()
        for move in moves(state):
            following = after(state, *move)
            if following not in found:
                found[following] = found[state] + 1
                queue.append(following)
    return found


def test_contract():
    check_contract("Blocksworld-v0")
    check_contract("Blocksworld-v0", blocks=7)


def test_only_free_blocks_move_and_only_onto_free_places():
    env = stacks((TABLE, 0, TABLE), (TABLE, TABLE, 1))  # B on A, C alone
    assert env.render() == "Now:  A B | C\nGoal: A | B C"
    for blocked in ("A onto C", "C onto A", "C onto table", "A onto table"):
        step = check_step(env, blocked)
        assert step.info["action_is_valid"] and not step.info["action_is_effective"]
    assert check_step(env, "b ONTO c").observation.startswith("Now:  A | C B\n")
    assert not check_step(env, "B onto B").info["action_is_valid"]


def test_the_goal_earns_one_and_ends():
    step = check_step(stacks((TABLE, TABLE), (TABLE, 0)), "B onto A")
    assert (step.reward, step.terminated, step.info["success"]) == (1.0, True, True)


def test_the_oracle_is_shortest_between_any_two_states():
    shortest = everything(4)
    assert len(shortest) == 73  # sets of lists of 4 things, OEIS A000262
    env = stacks((TABLE,) * 4, (TABLE,) * 4)
    for env.below, ways in list(shortest.items())[::3]:
        for env.goal, moves_needed in ways.items():
            assert len(env.oracle()) == moves_needed <= 6


def test_plans_are_at_most_twice_the_shortest(monkeypatch):
    env = make("Blocksworld-v0", blocks=6)
    for seed in range(40):
        env.reset(seed=seed)
        shortest = len(env.oracle())
        with monkeypatch.context() as patch:
            patch.setattr(blocksworld, "_ORACLE_STATES", 0)
            plan = env.oracle()
        assert shortest <= len(plan) <= 2 * shortest
        for action in plan:
            step = check_step(env, action)
            assert step.info["action_is_effective"]
        assert step.info["success"] and len(plan) <= env.max_actions


@pytest.mark.parametrize("blocks", [2, 5, 8])
def test_the_oracle_solves_every_task_within_the_budget(blocks):
    env = make("Blocksworld-v0", blocks=blocks)
    for seed in range(30):
        env.reset(seed=seed)
        steps, reward = play_oracle(env)
        assert reward == 1.0 and len(steps) <= 2 * (blocks - 1) <= env.max_actions


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31), choices=st.lists(st.integers(0, 24), max_size=30))
def test_stacks_stay_stacks(seed, choices):
    env = make("Blocksworld-v0", blocks=5)
    env.reset(seed=seed)
    for choice in choices:
        check_step(env, env.actions[choice])
        carried = [block for block in env.below if block != TABLE]
        assert len(set(carried)) == len(carried)
        for block in range(5):  # and each ends on the table
            for _ in range(5):
                block = env.below[block] if block != TABLE else TABLE
            assert block == TABLE


def test_long_episodes_are_truncated():
    env = stacks((TABLE,) * 4, (TABLE, 0, 1, 2))
    steps = [env.step("A onto table") for _ in range(80)]
    assert steps[-1].truncated and not steps[-1].terminated and not steps[-2].truncated


@pytest.mark.parametrize("blocks", [1, 9, True, "4"])
def test_bad_arguments(blocks):
    with pytest.raises(RecipeError, match="blocks"):
        make("Blocksworld-v0", blocks=blocks)
