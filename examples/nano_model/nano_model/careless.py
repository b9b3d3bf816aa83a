"""Scripted players of mixed quality, for demonstrations and baselines.

Each takes an environment that has been reset and returns action names without changing it. The good player is the
environment's own `oracle()`; these are the bad ones.
"""

from __future__ import annotations

from ragen_envs.bandit import Bandit
from ragen_envs.common.grid import DIRECTIONS, Cell, shortest_path
from ragen_envs.frozen_lake import FrozenLake
from ragen_envs.sokoban import Sokoban

from ragen_verl.env import Env


def careless_plan(env: Env) -> list[str]:
    """Return the plan of a player that sees its aim but not the dangers.

    FrozenLake: a shortest path to the goal, holes or not. Sokoban: walk to a box and push it straight at a target,
    traps or not. Bandit: the safe arm. [] if the episode is over, or if no box can be pushed nearer to a target.

    Raises:
        TypeError: for any other environment.
    """
    if isinstance(env, FrozenLake):
        return _straight_to_the_goal(env)
    if isinstance(env, Sokoban):
        return _push_and_hope(env)
    if isinstance(env, Bandit):
        return [env.low] if env.oracle() else []
    raise TypeError(f"There is no careless player for {type(env).__name__}.")


def _straight_to_the_goal(env: FrozenLake) -> list[str]:
    if env.player == env.goal or env.player in env.holes:
        return []
    down, right = env.goal[0] - env.player[0], env.goal[1] - env.player[1]
    vertical = ["Down" if down > 0 else "Up"] * abs(down)
    horizontal = ["Right" if right > 0 else "Left"] * abs(right)
    # The longer part first: a fixed rule, so that the visible state determines the plan.
    return vertical + horizontal if abs(down) >= abs(right) else horizontal + vertical


def _push_and_hope(env: Sokoban) -> list[str]:
    if env.level is None:
        return []
    player, boxes, plan = env.player, env.boxes, []
    while pushes := _next_pushes(env, player, boxes):
        for name in pushes:
            player, boxes = env.after(name, player, boxes)
        plan += pushes
    return plan


def _next_pushes(env: Sokoban, player: int, boxes: int) -> list[str]:
    """Return the walk to some box and one push that brings it nearer to its nearest free target, or []."""
    columns = env.dim[1]

    def cells(mask: int) -> list[Cell]:
        return [divmod(cell, columns) for cell in range(mask.bit_length()) if mask >> cell & 1]

    def passable(cell: Cell) -> bool:
        return not (env.level.walls | boxes) >> (cell[0] * columns + cell[1]) & 1

    here = divmod(player, columns)
    targets = cells(env.level.targets & ~boxes)
    best: list[str] = []
    for box in sorted(cells(boxes & ~env.level.targets), key=lambda cell: _distance(cell, here)):
        target = min(targets, key=lambda cell: _distance(cell, box))
        for name, (down, right) in DIRECTIONS.items():
            ahead, behind = (box[0] + down, box[1] + right), (box[0] - down, box[1] - right)
            if _distance(ahead, target) > _distance(box, target) or not (passable(ahead) and passable(behind)):
                continue
            walk = shortest_path(here, behind.__eq__, passable, env.actions)
            if walk is not None and (not best or len(walk) + 1 < len(best)):
                best = [*walk, name]
        if best:
            return best
    return best


def _distance(one: Cell, other: Cell) -> int:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])
