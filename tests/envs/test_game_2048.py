"""2048: moves, merges, rewards."""

from __future__ import annotations

import math

import numpy as np
import pytest
from environment_contract import TEXTS, check_contract, check_step, play_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_envs.game_2048 import Game2048, empty_cells, moves, slide

from ragen_verl import make
from ragen_verl.errors import RecipeError

BOARDS = st.lists(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 9]), min_size=4, max_size=4), min_size=4, max_size=4).map(
    lambda rows: tuple(map(tuple, rows))
)


def game(*rows: str, **kwargs) -> Game2048:
    env = Game2048(**kwargs)
    env.reset(seed=0)
    env.board = tuple(tuple(0 if sign == "." else int(sign).bit_length() - 1 for sign in row.split()) for row in rows)
    return env


def test_contract():
    check_contract("Game2048-v0", target=64)  # a random player reaches 16 nearly always


def test_both_ids_are_one_game():
    assert type(make("2048-v0")) is type(make("Game2048-v0")) is Game2048


@pytest.mark.parametrize(
    ("name", "first"),
    [("Left", "4 4 . ."), ("Right", ". . 4 4"), ("left ", "4 4 . .")],
)
def test_tiles_merge_once_from_the_side_they_slide_to(name, first):
    env = game("2 2 2 2", ". . . .", ". . . .", ". . . .")
    step = env.step(name)
    shown = step.observation.splitlines()[0].split()
    assert [sign for sign, wanted in zip(shown, first.split(), strict=True) if wanted != "."] == ["4", "4"]
    assert step.reward == pytest.approx(0.1 * math.log2(9)) and step.info["score"] == 8.0


def test_three_alike_merge_the_two_in_front():
    board = game("2 2 2 .", ". . . .", "4 2 2 .", ". . . .").board
    assert slide(board, "Left") == (((2, 1, 0, 0), (0,) * 4, (2, 2, 0, 0), (0,) * 4), 8)
    assert slide(board, "Right")[0][0] == (0, 0, 1, 2)


def test_new_tile_appears_only_after_a_change():
    env = game("2 4 . .", ". . . .", ". . . .", ". . . .", reward="score")
    step = env.step("Left")
    assert step.reward == -0.1 and not step.info["action_is_effective"] and step.info["action_is_valid"]
    assert game("2 4 . .", ". . . .", ". . . .", ". . . .").step("Up").reward == 0.0
    step = env.step("Down")
    assert step.info["action_is_effective"] and len(empty_cells(env.board)) == 13


def test_target_is_success_and_a_full_board_is_the_end():
    step = game("8 8 . .", ". . . .", ". . . .", ". . . .", target=16).step("Left")
    assert step.terminated and step.info["success"] and step.info["largest_tile"] == 16.0
    env = game("2 4 2 4", "4 2 4 2", "2 4 2 4", "4 2 8 16", two_prob=0.0)
    step = env.step("Left")
    assert step.terminated and not step.info["success"] and env.oracle() == []


@given(BOARDS)
@settings(max_examples=200, deadline=None)
def test_sliding_keeps_the_sum_and_mirrors(board):
    def total(tiles):
        return sum(2**tile for row in tiles for tile in row if tile)

    def mirrored(tiles):
        return tuple(row[::-1] for row in tiles)

    def turned(tiles):
        return tuple(zip(*tiles, strict=True))

    for name in Game2048.actions:
        assert total(slide(board, name)[0]) == total(board)
    left, gained = slide(board, "Left")
    assert slide(mirrored(board), "Right") == (mirrored(left), gained)
    assert slide(turned(board), "Up") == (turned(left), gained)
    assert (left != board) == ("Left" in moves(board))
    for row in left:  # no gap before a tile
        assert sorted(row, key=lambda tile: tile == 0) == list(row)


@given(st.lists(TEXTS | st.sampled_from(Game2048.actions), max_size=20), st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_hostile_text(actions, seed):
    env = Game2048()
    env.reset(seed=seed)
    for action in actions:
        assert check_step(env, action).info["action_is_valid"] == (action in env.action_space)


def test_members_share_the_start_and_not_the_tiles():
    env = Game2048()
    starts, ways = set(), set()
    for rollout_index in range(16):
        starts.add(env.reset(seed=4, options={"rollout_index": rollout_index})[0])
        ways.add(tuple(env.step(name).observation for name in ("Left", "Up", "Right", "Down")))
    assert len(starts) == 1 and len(ways) == 16


def test_share_of_twos():
    env = Game2048(two_prob=0.9)
    twos = 0
    for seed in range(2000):
        env.reset(seed=seed)
        twos += sum(tile == 1 for row in env.board for tile in row)
    assert 0.88 < twos / 4000 < 0.92


def test_oracle_reaches_a_target_that_random_play_does_not():
    reached = {"oracle": 0, "random": 0}
    for seed in range(10):
        env = make("Game2048-v0", target=256)
        env.reset(seed=seed)
        steps, _ = play_oracle(env)
        reached["oracle"] += steps[-1].info["success"] and len(steps) <= env.max_actions
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        done = False
        while not done:
            step = env.step(env.actions[rng.integers(4)])
            done = step.terminated or step.truncated
        reached["random"] += step.info["success"]
    assert reached["oracle"] >= 9 > 2 >= reached["random"]


def test_standing_still_is_cut_off():
    env = game("2 4 . .", ". . . .", ". . . .", ". . . .", target=8)
    steps = [env.step("Left") for _ in range(32)]
    assert steps[-1].truncated and not steps[-2].truncated


@pytest.mark.parametrize(
    "kwargs", [{"target": 100}, {"target": 4}, {"target": True}, {"two_prob": 2}, {"reward": "sum"}]
)
def test_bad_arguments(kwargs):
    with pytest.raises(RecipeError, match=next(iter(kwargs))):
        Game2048(**kwargs)
