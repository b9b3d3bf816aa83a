"""FrozenLake: maps, slips, texts, rewards."""

from __future__ import annotations

import pytest
from nano_model.careless import careless_plan
from ragen_envs.frozen_lake import FrozenLake
from random_play import random_plan

from ragen_verl import make
from ragen_verl.errors import RecipeError

SIDES = {"Left": "UpDown", "Right": "UpDown", "Up": "LeftRight", "Down": "LeftRight"}


def board(holes=(), start=(0, 0), goal=(3, 3), **kwargs) -> FrozenLake:
    env = FrozenLake(**kwargs)
    env.reset(seed=0)
    env.holes, env.origin, env.player, env.goal = frozenset(holes), start, start, goal
    return env


def test_defaults_and_variants():
    env = make("FrozenLake-v0")
    assert (env.size, env.frozen, env.success_rate, env.max_actions) == (4, 0.8, 1 / 3, 10)
    assert env.actions == ("Left", "Down", "Right", "Up")
    coord = make("CoordFrozenLake-v0")
    assert (coord.frozen, coord.success_rate, coord.observation_format) == (0.9, 1.0, "grid_coord")


def test_goal_earns_one_and_ends():
    env = board(goal=(0, 1), success_rate=1.0)
    assert env.step("down").reward == 0.0
    env.step("Up")
    step = env.step("RIGHT ")
    assert (step.reward, step.terminated, step.info["success"]) == (1.0, True, True)
    assert step.observation.startswith("_√")


def test_hole_earns_nothing_and_ends():
    env = board(holes=[(1, 0)], success_rate=1.0)
    step = env.step("Down")
    assert (step.reward, step.terminated, step.truncated, step.info["success"]) == (0.0, True, False, False)
    assert step.info["action_is_effective"] and step.observation.splitlines()[1][0] == "X"


def test_rim_stops_the_player():
    step = board(success_rate=1.0).step("Left")
    assert step.info["action_is_valid"] and not step.info["action_is_effective"]
    assert step.observation == "P___\n____\n____\n___G"


def test_symbols():
    env = board(holes=[(0, 1), (2, 2)])
    assert env.render() == "PO__\n____\n__O_\n___G"
    assert set(env.symbols) == set("P_OGX√")


@pytest.mark.parametrize(("rate", "bounds"), [(1 / 3, (0.31, 0.36)), (0.8, (0.78, 0.82)), (1.0, (1.0, 1.0))])
@pytest.mark.parametrize("move", ["Left", "Down", "Right", "Up"])
def test_slip_frequencies(rate, bounds, move):
    env = board(start=(1, 1), success_rate=rate)
    went = dict.fromkeys(("Left", "Down", "Right", "Up"), 0)
    for _ in range(6000):
        env.player = (1, 1)
        env._moves_made = 0
        env.step(move)
        landed = {(1, 0): "Left", (2, 1): "Down", (1, 2): "Right", (0, 1): "Up"}[env.player]
        went[landed] += 1
    assert bounds[0] <= went.pop(move) / 6000 <= bounds[1]
    for other, count in went.items():
        share = (1 - rate) / 2 if other in SIDES[move] else 0.0
        assert abs(count / 6000 - share) < 0.02


def test_group_members_slip_differently_on_one_board():
    env = make("FrozenLake-v0", frozen=1.0)
    boards, ways = set(), set()
    for rollout_index in range(16):
        boards.add(env.reset(seed=1, options={"rollout_index": rollout_index})[0])
        ways.add(tuple(env.step("Right").observation for _ in range(4)))
    assert len(boards) == 1 and len(ways) > 4


def test_every_board_can_be_crossed_and_start_is_never_the_goal():
    env = make("FrozenLake-v0", frozen=0.5, success_rate=1.0)
    starts = set()
    for seed in range(300):
        env.reset(seed=seed)
        assert env.player == env.origin != env.goal and not {env.origin, env.goal} & env.holes
        starts.add(env.origin)
        for action in env.oracle():
            step = env.step(action)
        assert step.info["success"]
    assert len(starts) == 16


def test_share_of_frozen_cells():
    env = make("FrozenLake-v0", size=10, frozen=0.9)
    holes = 0
    for seed in range(200):
        env.reset(seed=seed)
        holes += len(env.holes)
    assert 0.085 < holes / (200 * 98) < 0.105


def test_coordinates_tell_the_truth():
    text = board(holes=[(0, 1), (2, 2)], observation_format="coord").render()
    assert text.splitlines() == [
        "Board: 4 rows x 4 columns, (row, column) from (0, 0) at the top left.",
        "Start: (0, 0)",
        "Goal: (3, 3)",
        "Player: (0, 0)",
        "Holes: (0, 1), (2, 2)",
    ]
    both = board(holes=[(0, 1)], observation_format="grid_coord").render()
    assert both.startswith("Coordinates:\nBoard: 4 rows") and both.endswith("Grid Map:\nPO__\n____\n____\n___G")
    env = board(holes=[(1, 0)], observation_format="coord", success_rate=1.0)
    assert env.symbols == {}
    assert "Player in a hole: (1, 0)" in env.step("Down").observation


def test_the_oracle_is_optimal_the_careless_player_is_not():
    env = make("FrozenLake-v0", success_rate=1.0)
    within = drowned = 0
    for seed in range(500):
        env.reset(seed=seed)
        within += len(env.oracle()) <= env.max_actions
        plan = careless_plan(env)
        assert len(plan) <= len(env.oracle())
        for action in plan:
            step = env.step(action)
            if step.terminated:
                break
        drowned += not step.info["success"]
    assert within == 500
    assert 50 < drowned < 250


def test_random_plan_uses_every_name():
    import numpy as np

    env = make("FrozenLake-v0")
    env.reset(seed=0)
    plan = random_plan(env, np.random.default_rng(0), 100)
    assert len(plan) == 100 and set(plan) == set(env.actions)


def test_long_episodes_are_truncated():
    env = board(success_rate=1.0)
    steps = [env.step("Left") for _ in range(100)]
    assert steps[-1].truncated and not steps[-1].terminated and not steps[-2].truncated


@pytest.mark.parametrize(
    "kwargs",
    [{"size": 1}, {"size": 4.0}, {"frozen": 1.2}, {"success_rate": "high"}, {"observation_format": "image"}],
)
def test_bad_arguments(kwargs):
    with pytest.raises(RecipeError, match=next(iter(kwargs))):
        make("FrozenLake-v0", **kwargs)


@pytest.mark.parametrize(("size", "frozen"), [(2, 0.0), (10, 0.0), (50, 0.3)])
def test_hard_settings_still_give_a_board(size, frozen):
    env = make("FrozenLake-v0", size=size, frozen=frozen)
    env.reset(seed=0)
    assert env.oracle()
