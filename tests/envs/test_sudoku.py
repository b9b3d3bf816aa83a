"""Sudoku: puzzles, moves, rewards."""

from __future__ import annotations

import numpy as np
import pytest
from environment_contract import TEXTS, check_contract, check_step, play_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_envs.sudoku import EMPTY_SHARE, Sudoku, full_grid, units

from ragen_verl import make
from ragen_verl.errors import RecipeError

SOLVED = [1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1]


def game(holes=(0, 1, 6)) -> Sudoku:
    env = Sudoku()
    env.reset(seed=0)
    env.solution = list(SOLVED)
    env.grid = [0 if cell in holes else number for cell, number in enumerate(SOLVED)]
    env.given = frozenset(range(16)) - set(holes)
    return env


def solutions(grid: list[int], size: int, most: int = 2) -> int:
    """Count the solutions by plain search, up to `most`."""
    free = [cell for cell, number in enumerate(grid) if not number]
    if not free:
        return 1
    around = {cell: {grid[other] for unit in units(size)[cell] for other in unit} for cell in free}
    cell = max(free, key=lambda place: len(around[place]))
    found = 0
    for number in set(range(1, size + 1)) - around[cell]:
        found += solutions([*grid[:cell], number, *grid[cell + 1 :]], size, most - found)
        if found >= most:
            break
    return found


@pytest.mark.parametrize("kwargs", [{}, {"size": 9, "difficulty": "hard"}])
def test_contract(kwargs):
    check_contract("Sudoku-v0", **kwargs)


def test_text_of_the_grid():
    assert game().render() == ". . | 3 4\n3 4 | . 2\n----+----\n2 1 | 4 3\n4 3 | 2 1"


@pytest.mark.parametrize(
    "action",
    [
        "row 1 column 2 is 2",
        "ROW 1, COL 2 = 2",
        "r1c2=2",
        "1,2,2",
        " 1, 2, 2\n",
        "place 2 at row 1 col 2",
        "2 in row1 col2",
    ],
)
def test_forms_of_an_entry(action):
    step = check_step(game(), action)
    assert step.reward == 1.0 and step.info["action_is_effective"] and step.observation.startswith(". 2")


@pytest.mark.parametrize(
    "action", ["", "row 1", "r5c1=1", "r0c1=1", "r1c1=5", "1,2", "1,2,2,2", "r1c2=２", "row 1 column 2 is x"]
)
def test_what_is_no_entry(action):
    assert not check_step(game(), action).info["action_is_valid"]


def test_rewards():
    env = Sudoku()
    env.reset(seed=0)
    env.solution, env.grid, env.given = list(SOLVED), [0] * 14 + [2, 1], frozenset({14, 15})
    assert env.step("r1c1=2").reward == 0.5
    assert env.step("r1c1=2").reward == -0.1
    assert env.step("r1c2=2").reward == -0.1
    assert env.step("r1c1=1").reward == 0.5
    assert env.step("r1c1=0").reward == -1.0
    assert env.step("r1c1=0").reward == -0.1
    assert env.step("r4c4=0").reward == -0.1
    assert env.grid[15] == 1


def test_solving_ends():
    env = game()
    assert env.step("1,1,1").reward + env.step("1,2,2").reward == 2.0
    step = env.step("2,3,1")
    assert step.reward == 11.0 and step.terminated and step.info["success"]


@given(st.lists(TEXTS | st.tuples(*[st.integers(0, 5)] * 3).map(lambda t: f"r{t[0]}c{t[1]}={t[2]}"), max_size=30))
@settings(max_examples=150, deadline=None)
def test_entries_earn_what_the_grid_is_worth(actions):
    env = game(holes=(0, 1, 4, 5, 6, 11))
    earned = 0.0
    for action in actions:
        step = check_step(env, action)
        earned += step.reward if step.info["action_is_effective"] else 0.0
        assert all(env.grid[cell] == SOLVED[cell] for cell in env.given)
    worth = sum(env._worth(cell) for cell in range(16)) - len(env.given)
    assert earned == pytest.approx(worth + (10.0 if env.grid == SOLVED else 0.0))


@given(seed=st.integers(0, 2**31), tries=st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_oracle_solves_from_any_state(seed, tries):
    env = make("Sudoku-v0", difficulty="hard")
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    for _ in range(tries):
        env.step(env.random_action(rng))
    for action in env.oracle():
        step = env.step(action)
        assert step.info["action_is_effective"]
    assert env.grid == env.solution


@pytest.mark.parametrize("size", [4, 9])
@pytest.mark.parametrize("difficulty", list(EMPTY_SHARE))
def test_puzzles_have_one_solution_and_the_holes_asked_for(size, difficulty):
    env = Sudoku(size, difficulty)
    for seed in range(6):
        env.reset(seed=seed)
        assert env.holes - 8 <= env.grid.count(0) <= env.holes == round(EMPTY_SHARE[difficulty] * size**2)
        assert solutions(env.grid, size) == 1
        steps, total = play_oracle(env)
        assert len(steps) == len(env.solution) - len(env.given) and total == len(steps) + 10


def test_full_grids_are_correct_and_all_of_size_four_come_up():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(4000):
        grid = full_grid(4, rng)
        seen.add(tuple(grid))
    assert len(seen) == 288
    for size, grids in ((4, seen), (9, {tuple(full_grid(9, rng)) for _ in range(5)})):
        for grid in grids:
            for cell, three in enumerate(units(size)):
                assert all(grid[cell] != grid[other] for unit in three for other in unit)


@pytest.mark.parametrize("kwargs", [{"size": 6}, {"size": True}, {"difficulty": "evil"}])
def test_bad_arguments(kwargs):
    with pytest.raises(RecipeError, match=next(iter(kwargs))):
        Sudoku(**kwargs)
