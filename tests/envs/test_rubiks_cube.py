"""The pocket cube: turns against facts known of the real cube."""

from __future__ import annotations

import pytest
from environment_contract import check_contract, check_step, play_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_envs.rubiks_cube import SOLVED, TURNS, RubiksCube, inverse, shortest_solution, solved

from ragen_verl import make
from ragen_verl.errors import RecipeError


def turned(names: str) -> tuple[str, ...]:
    cube = SOLVED
    for name in names.split():
        cube = TURNS[name](cube)
    return cube


def shown(cube: tuple[str, ...]) -> str:
    env = RubiksCube()
    env.reset(seed=0)
    env.cube = cube
    return env.render()


def test_contract():
    check_contract("RubiksCube-v0")
    check_contract("RubiksCube-v0", scramble=1)


def test_a_solved_cube():
    assert shown(SOLVED) == "U: WW/WW\nL: OO/OO\nF: GG/GG\nR: RR/RR\nB: BB/BB\nD: YY/YY"
    assert solved(SOLVED) and shortest_solution(SOLVED) == []


@pytest.mark.parametrize(
    ("turn", "faces"),
    [
        ("U", "U: WW/WW L: GG/OO F: RR/GG R: BB/RR B: OO/BB D: YY/YY"),
        ("D", "U: WW/WW L: OO/BB F: GG/OO R: RR/GG B: BB/RR D: YY/YY"),
        ("R", "U: WG/WG L: OO/OO F: GY/GY R: RR/RR B: WB/WB D: YB/YB"),
        ("L", "U: BW/BW L: OO/OO F: WG/WG R: RR/RR B: BY/BY D: GY/GY"),
        ("F", "U: WW/OO L: OY/OY F: GG/GG R: WR/WR B: BB/BB D: RR/YY"),
        ("B", "U: RR/WW L: WO/WO F: GG/GG R: RY/RY B: BB/BB D: YY/OO"),
    ],
)
def test_each_turn_carries_the_rows_it_should(turn, faces):
    assert shown(turned(turn)).replace("\n", " ") == faces


def test_turns_have_the_orders_known_of_the_cube():
    def order(names: str) -> int:
        cube, times = turned(names), 1
        while cube != SOLVED:
            for name in names.split():
                cube = TURNS[name](cube)
            times += 1
        return times

    assert {order(name) for name in TURNS} == {4}
    assert order("R U R' U'") == 6
    assert order("R U") == 15  # of the corners; 105 with a 3x3's edges
    assert all(turned(f"{name} {inverse(name)}") == SOLVED for name in TURNS)


def test_a_solved_cube_held_differently_is_solved():
    assert turned("U D'") != SOLVED and solved(turned("U D'"))
    assert not solved(turned("U"))


@settings(max_examples=25, deadline=None)
@given(names=st.lists(st.sampled_from(sorted(TURNS)), max_size=7))
def test_the_oracle_solves_in_no_more_turns_than_made(names):
    cube = turned(" ".join(names))
    plan = shortest_solution(cube)
    assert len(plan) <= len(names)
    for name in plan:
        cube = TURNS[name](cube)
    assert solved(cube)


def test_the_oracle_is_shortest_near_the_goal():
    """Turns of three faces reach 1, 6, 27, 120 cubes in 0, 1, 2, 3 quarter turns: the known table of the 2x2x2."""
    rim, seen, sizes = {SOLVED}, {SOLVED}, []
    for turns in range(4):
        sizes.append(len(rim))
        assert all(len(shortest_solution(cube)) == turns for cube in rim)
        rim = {TURNS[name](cube) for cube in rim for name in ("U", "U'", "R", "R'", "F", "F'")} - seen
        seen |= rim
    assert sizes == [1, 6, 27, 120]


def test_any_scramble_takes_at_most_fourteen_turns():
    env = make("RubiksCube-v0", scramble=50)
    for seed in range(4):
        env.reset(seed=seed)
        assert len(env.oracle()) <= 14


def test_solving_earns_one_and_ends():
    env = RubiksCube()
    env.reset(seed=0)
    env.cube = turned("F'")
    step = check_step(env, " f ")
    assert (step.reward, step.terminated, step.info["success"]) == (1.0, True, True)
    assert not check_step(cube_after("F' R"), "F").terminated


def cube_after(names: str) -> RubiksCube:
    env = RubiksCube()
    env.reset(seed=0)
    env.cube = turned(names)
    return env


def test_twenty_turns_are_the_limit():
    env = cube_after("U R F")
    steps = [env.step("U") for _ in range(20)]
    assert steps[-1].truncated and not steps[-1].terminated and not steps[-2].truncated


def test_no_start_is_solved():
    for scramble in (1, 2):
        env = make("RubiksCube-v0", scramble=scramble)
        starts = set()
        for seed in range(150):
            env.reset(seed=seed)
            assert not solved(env.cube)
            starts.add(env.cube)
            assert play_oracle(env)[1] == 1.0
        assert len(starts) > (11 if scramble == 1 else 50)


@pytest.mark.parametrize("turn", ["U’", "U2", "u '", "Ｕ", "UU"])
def test_what_is_no_turn_changes_nothing(turn):
    assert not check_step(cube_after("R"), turn).info["action_is_valid"]


@pytest.mark.parametrize("scramble", [0, 51, True, "5"])
def test_bad_arguments(scramble):
    with pytest.raises(RecipeError, match="scramble"):
        make("RubiksCube-v0", scramble=scramble)
