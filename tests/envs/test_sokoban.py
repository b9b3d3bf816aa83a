"""Sokoban: moves, texts, rewards, and the level generator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nano_model.careless import careless_plan
from ragen_envs.sokoban import Sokoban
from ragen_envs.sokoban.levels import Level, carve, generate, pull_apart, pull_apart_depth_first

from ragen_verl import make
from ragen_verl.errors import RecipeError


def room(text: str, **kwargs) -> Sokoban:
    """Return an environment that stands at the drawn state."""
    rows = text.split()
    flat = "".join(rows)

    def mask(symbols: str) -> int:
        return sum(1 << k for k, symbol in enumerate(flat) if symbol in symbols)

    level = Level(len(rows), len(rows[0]), mask("#"), mask("O√S"), mask("X√"), mask("PS").bit_length() - 1)
    env = Sokoban(dim=(level.rows, level.columns), boxes=level.boxes.bit_count(), **kwargs)
    env.reset(seed=0)
    env.level, env.player, env.boxes = level, level.player, level.boxes
    return env


CORRIDOR = "####### #PXO__# #_____# #X___O# ####### "


def play(env, *actions):
    return [env.step(action) for action in actions]


def test_rewards_box_on_and_off_its_target():
    on, off, back, _ = play(room(CORRIDOR), "Right", "right", " RIGHT", "Left")
    assert (on.reward, off.reward, back.reward) == pytest.approx((0.9, -1.1, -0.1))
    assert on.observation.splitlines()[1] == "#_P√__#"
    assert off.observation.splitlines()[1] == "#__SX_#"
    assert not off.terminated and not off.info["success"]


def test_reward_for_solving():
    env = room("##### #PXO# #___# #___# #####")
    (step,) = play(env, "Right")
    assert step.reward == pytest.approx(-0.1 + 1 + 10)
    assert step.terminated and step.info["success"]


def test_blocked_moves_cost_but_do_nothing():
    env = room("##### #_PX# #__O# #___# #####")
    wall, box, left = play(env, "Up", "Right", "Left")
    for step in (wall, box):
        assert step.reward == pytest.approx(-0.1)
        assert step.info["action_is_valid"] and not step.info["action_is_effective"]
    assert left.info["action_is_effective"]


def test_two_boxes_in_a_row_do_not_move():
    env = room("####### #PXX__# #OO___# ####### #######")
    (step,) = play(env, "Right")
    assert not step.info["action_is_effective"] and step.observation.splitlines()[1] == "#PXX__#"


def test_both_vocabularies():
    text = "###### #PXO_# #√_X_# #_O__# ######"
    assert room(text).render() == text.replace(" ", "\n")
    letters = room(text, vocabulary="letters").render()
    assert letters == text.replace(" ", "\n").translate(str.maketrans("#_O√XPS", "W.GCBA@"))
    env = room("###### #SX__# #____# ###### ######")
    assert env.render().splitlines()[1] == "#SX__#"
    assert room("###### #SX__# #____# ###### ######", vocabulary="letters").render().splitlines()[1] == "W@B..W"
    assert set(env.symbols) == set("#_O√XPS")


def test_coordinates():
    env = room("###### #PXO_# #√_X_# #_O__# ######", observation_format="coord")
    assert env.render().splitlines() == [
        "Board: 5 rows x 6 columns, (row, column) from (0, 0) at the top left.",
        "Targets: (1, 3), (2, 1), (3, 2)",
        "Boxes: (1, 2), (2, 3)",
        "Boxes on a target: (2, 1)",
        "Player: (1, 1)",
    ]
    assert env.symbols == {}
    env = room("###### #SX__# #____# ###### ######", observation_format="coord")
    assert env.render().splitlines()[1:] == ["Targets: (1, 1)", "Boxes: (1, 2)", "Player on a target: (1, 1)"]
    both = room("###### #SX__# #____# ###### ######", observation_format="grid_coord").render()
    assert both.startswith("Coordinates:\nBoard") and "\nGrid Map:\n######\n#SX__#" in both


def test_truncates_after_a_hundred_actions():
    env = room("##### #PX_# #__O# #___# #####")
    steps = play(env, *["Up"] * 100)
    assert steps[-1].truncated and not steps[-2].truncated and not steps[-1].terminated


@pytest.mark.parametrize(
    ("id", "dim", "boxes", "depth", "symbols", "form"),
    [
        ("Sokoban-v0", (6, 6), 1, 300, "#_O√XPS", "grid"),
        ("SimpleSokoban-v0", (6, 6), 1, 300, "#_O√XPS", "grid"),
        ("LargerSokoban-v0", (8, 8), 2, 10, "#_O√XPS", "grid"),
        ("SokobanNewVocab-v0", (6, 6), 1, 30, "W.GCBA@", "grid"),
        ("CoordSokoban-v0", (6, 6), 1, 300, "#_O√XPS", "grid_coord"),
    ],
)
def test_variants(id, dim, boxes, depth, symbols, form):
    env = make(id)
    env.reset(seed=4)
    assert (env.dim, env.boxes.bit_count(), env.search_depth, env.observation_format) == (dim, boxes, depth, form)
    assert "".join(env.symbols) == symbols
    assert env.level.targets.bit_count() == boxes and not env.level.targets & env.boxes


@pytest.mark.parametrize(
    ("id", "within"), [("Sokoban-v0", 0.98), ("SokobanNewVocab-v0", 0.98), ("LargerSokoban-v0", 0.96)]
)
def test_the_oracle_solves_every_level_mostly_within_the_budget(id, within):
    env = make(id)
    lengths = []
    for seed in range(150):
        env.reset(seed=seed)
        plan = env.oracle()
        steps = play(env, *plan)
        assert plan and steps[-1].terminated and steps[-1].info["success"], seed
        lengths.append(len(plan))
    assert sum(length <= env.max_actions for length in lengths) / 150 >= within
    if id == "LargerSokoban-v0":
        assert max(lengths) <= 9 + 3  # fewer steps than the search depth, and up to 3 aside


def test_the_oracle_is_shortest_and_sees_traps():
    assert room("###### #P___# #_X_O# #____# ######").oracle() == ["Down", "Right", "Right"]
    assert room("##### #X__# #_P_# #__O# #####").oracle() == []


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), dim=st.tuples(st.integers(5, 9), st.integers(5, 9)), boxes=st.integers(1, 2))
def test_levels_are_well_formed_and_solvable(seed, dim, boxes):
    level = generate(np.random.default_rng(seed), *dim, boxes, 20)
    assert level == generate(np.random.default_rng(seed), *dim, boxes, 20)
    assert level.boxes.bit_count() == level.targets.bit_count() == boxes
    player = 1 << level.player
    assert not (level.boxes & level.targets or level.walls & (level.boxes | level.targets | player))
    assert not level.boxes & player
    border = [k for k in range(dim[0] * dim[1]) if k // dim[1] in (0, dim[0] - 1) or k % dim[1] in (0, dim[1] - 1)]
    assert all(level.walls >> k & 1 for k in border)
    env = Sokoban(dim=dim, boxes=boxes)
    env.reset(seed=0)
    env.level, env.player, env.boxes = level, level.player, level.boxes
    assert 0 < len(env.oracle()) <= 19 + 3


def test_levels_differ_between_seeds():
    env = make("Sokoban-v0")
    assert len({env.reset(seed=seed)[0] for seed in range(500)}) > 450


def test_rooms_have_a_connected_floor_inside_the_border():
    for seed in range(50):
        floor = carve(np.random.default_rng(seed), 6, 6)
        cells = {k for k in range(36) if floor >> k & 1}
        reached, pending = set(), [next(iter(cells))]
        while pending:
            cell = pending.pop()
            if cell in cells - reached:
                reached.add(cell)
                pending += [cell - 6, cell + 6, cell - 1, cell + 1]
        assert reached == cells and all(0 < k // 6 < 5 and 0 < k % 6 < 5 for k in cells)


def test_the_search_finds_the_farthest_box():
    # a corridor of 6 cells: the box can be pulled until only the player's cell is left
    columns = 8
    floor = sum(1 << columns + k for k in range(1, 7))
    player, boxes, displacement = pull_apart(floor, columns, columns + 2, [columns + 1], 300)
    assert (player, boxes, displacement) == (columns + 6, 1 << columns + 5, 4)
    assert pull_apart(floor, columns, columns + 2, [columns + 1], 3)[2] == 2
    assert pull_apart(floor, columns, columns + 6, [columns + 5], 300) is None  # nothing to pull


def test_larger_levels_are_as_hard_as_the_originals():
    # 1,500 levels of the released generator: 5.76 moves ± 0.05, standard deviation 1.76
    env, lengths = make("LargerSokoban-v0"), []
    for seed in range(600):
        env.reset(seed=seed)
        lengths.append(len(env.oracle()))
    assert abs(np.mean(lengths) - 5.76) < 0.25 and abs(np.std(lengths) - 1.76) < 0.2
    harder = make("LargerSokoban-v0", search="breadth_first")
    lengths = [len(harder.oracle()) for seed in range(300) if harder.reset(seed=seed)]
    assert np.mean(lengths) > 6.3


def test_depth_first_keeps_the_first_way_to_a_state():
    # the same corridor, whose only way is the same in both orders
    columns = 8
    floor = sum(1 << columns + k for k in range(1, 7))
    for depth in (3, 300):
        case = (floor, columns, columns + 2, [columns + 1])
        assert pull_apart_depth_first(*case, depth + 1) == pull_apart(*case, depth)
    # in an open room a detour over many changes of box beats the shortest way, so the two differ
    rng = np.random.default_rng(0)
    found = [(generate(rng, 8, 8, 2, 10), generate(rng, 8, 8, 2, 10, depth_first=True)) for _ in range(5)]
    assert all(one != other for one, other in found)


def test_the_player_does_not_always_stand_beside_the_box():
    env = make("Sokoban-v0")
    beside = 0
    for seed in range(300):
        env.reset(seed=seed)
        box = env.boxes.bit_length() - 1
        beside += abs(box - env.player) in (1, 6)
    assert 0.3 < beside / 300 < 0.8


@pytest.mark.timeout(60)  # and not after a search without an end
def test_impossible_requests_fail():
    with pytest.raises(RecipeError, match="larger dim"):
        make("Sokoban-v0", dim=(5, 5), boxes=5, search_depth=4).reset(seed=0)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"dim": (4, 6)},
        {"dim": 6},
        {"dim": (6, 6.0)},
        {"boxes": 0},
        {"boxes": 9},
        {"search_depth": 2},
        {"vocabulary": "emoji"},
        {"observation_format": "rgb"},
        {"search": "best_first"},
    ],
)
def test_bad_arguments(kwargs):
    with pytest.raises(RecipeError, match=next(iter(kwargs))):
        make("Sokoban-v0", **kwargs)


def test_dim_may_be_a_list_as_it_comes_from_yaml():
    env = make("Sokoban-v0", dim=[6, 7])
    env.reset(seed=0)
    assert [len(row) for row in env.render().splitlines()] == [7] * 6


def test_the_careless_player_solves_some_and_spoils_others():
    env = make("LargerSokoban-v0", search="breadth_first")
    solved = stuck = 0
    for seed in range(150):
        env.reset(seed=seed)
        plan = careless_plan(env)
        assert env.boxes == env.level.boxes  # planning changes nothing
        steps = play(env, *plan)
        solved += bool(steps) and steps[-1].info["success"]
        stuck += bool(steps) and not steps[-1].info["success"]
    assert solved > 50 and stuck > 15
