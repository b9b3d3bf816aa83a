"""MiniGrid and BabyAI as text: "minigrid:MiniGrid-DoorKey-5x5-v0"."""

from __future__ import annotations

from typing import Any

import gymnasium
from ragen_envs.adapters.external import need
from ragen_envs.adapters.gymnasium import MINIGRID, GymnasiumEnv

from ragen_verl.errors import BadEnvKwargs

__all__ = ["MiniGridEnv"]

_ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
_FACING = ("east", "south", "west", "north")
_PLAYER = ">v<^"
_SYMBOLS = {
    "#": "wall",
    ".": "free floor",
    "?": "not seen",
    "D": "closed door",
    "L": "locked door",
    "/": "open door",
    "K": "key",
    "B": "ball",
    "X": "box",
    "G": "goal",
    "~": "lava",
    "> v < ^": "you, by where you face",
}
_DRAWN = {"wall": "#", "floor": ".", "key": "K", "ball": "B", "box": "X", "goal": "G", "lava": "~"}
_VIEWS = ("full", "agent")


class MiniGridEnv(GymnasiumEnv):
    """## Description

    An environment of MiniGrid or BabyAI (Farama Foundation), drawn as text. `minigrid` is an extra.

    ## Action Space

    left and right turn on the spot, forward walks, pickup, drop and toggle act on the cell ahead, done claims that
    the task is done (only some tasks ask for it).

    ## Observation Space

    Text: the mission; the grid, one line for each row; each thing that is no wall with its colour and its place as
    (row, column); the place of the player, its direction and the thing that it carries. `view="agent"` draws the cells
    of the package's own observation: 7 x 7 cells with the player at the bottom in the middle, looking up.

    ## Starting State

    `reset(seed=seed)` of the environment. Afterwards the generator is that of seed and rollout index, which matters in
    tasks whose obstacles move.

    ## Rewards

    Those of the package: in most tasks 1 - 0.9 * steps / limit if the task is solved, else 0.

    ## Episode End

    That of the package, with its limit of steps. Solved: terminated with a positive reward.

    ## Arguments

    - `view="full"`: full or agent.
    - `instruction`, `success_return`, `max_actions`: as for gymnasium; all others are passed to `gymnasium.make`.

    ## Version History

    - v0: first version.
    """

    prefix = "minigrid"

    def __init__(
        self,
        id: str,
        *,
        view: str = "full",
        instruction: str | None = None,
        success_return: float | None = None,
        max_actions: int | None = None,
        **kwargs: Any,
    ) -> None:
        need("minigrid", "minigrid", self.prefix)
        if view not in _VIEWS:
            raise BadEnvKwargs(f"{self.prefix}: view must be one of {', '.join(_VIEWS)}, not {view!r}.")
        self.view = view
        self.symbols = dict(_SYMBOLS)
        super().__init__(
            id,
            instruction=instruction,
            success_return=success_return,
            max_actions=max_actions,
            **kwargs,
        )

    @staticmethod
    def names() -> list[str]:
        """The ids of MiniGrid and BabyAI in gymnasium's registry."""
        return [id for id in gymnasium.registry if id.startswith(MINIGRID)]

    def _in_words(self, ansi: bool) -> bool:
        return True

    def _action_names(self, given: list[str] | None) -> tuple[str, ...]:
        return _ACTIONS[: int(self.env.action_space.n)]  # some tasks have only the first three

    def _task(self) -> str:
        return (
            "You are in a grid of rooms and fulfil the mission that is shown. left and right turn you on the spot, "
            "forward walks one cell the way you face. pickup takes what lies on the cell ahead, drop puts down what "
            "you carry, toggle opens and closes the door or box ahead; a locked door opens with the key of its colour "
            "in hand. Lava ends the game. The fewer steps, the higher the reward."
        )

    def _text(self, raw: Any) -> str:
        world = self.env.unwrapped
        lines = [f"Mission: {raw['mission']}"]
        if self.view == "full":
            row, column = int(world.agent_pos[1]), int(world.agent_pos[0])
            grid, player = world.grid, (row, column, _PLAYER[world.agent_dir])
            seen = None
        else:
            grid, seen = world.gen_obs_grid()
            row, column = grid.height - 1, grid.width // 2
            player = (row, column, "^")
        drawing, things = _draw(grid, player, seen)
        lines += drawing
        if things:
            lines.append("Things: " + ", ".join(things) + ".")
        carried = f", carrying a {_what(world.carrying)}" if world.carrying else ""
        facing = f", facing {_FACING[world.agent_dir]}" if self.view == "full" else ""
        lines.append(f"You: row {row}, column {column}{facing}{carried}.")
        return "\n".join(lines)


def _draw(grid: Any, player: tuple[int, int, str], seen: Any) -> tuple[list[str], list[str]]:
    """Return the lines of the grid and the things in it, except walls and floor."""
    lines, things = [], []
    for row in range(grid.height):
        line = ""
        for column in range(grid.width):
            hidden = seen is not None and not seen[column, row]
            cell = None if hidden else grid.get(column, row)
            if (row, column) == player[:2]:
                line += player[2]  # the thing under the player (a goal, an open door) is in the list of things
            elif hidden:
                line += "?"
            else:
                line += _symbol(cell)
            on_player = seen is not None and (row, column) == player[:2]  # this cell holds the carried thing
            if cell is not None and cell.type not in ("wall", "floor") and not on_player:
                things.append(f"{_what(cell)} ({row}, {column})")
        lines.append(line)
    return lines, things


def _symbol(cell: Any) -> str:
    if cell is None:
        return "."
    if cell.type == "door":
        return "/" if cell.is_open else "L" if cell.is_locked else "D"
    return _DRAWN.get(cell.type, "*")


def _what(cell: Any) -> str:
    if cell.type == "door":
        return f"{cell.color} {'open' if cell.is_open else 'locked' if cell.is_locked else 'closed'} door"
    return cell.type if cell.type in ("goal", "lava") else f"{cell.color} {cell.type}"
