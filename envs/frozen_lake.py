"""FrozenLake: cross slippery ice to the goal without falling into a hole."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from ragen_envs.common.grid import DIRECTIONS, Cell, ObservationFormat, check_format, render, shortest_path

from ragen_verl.env import Env, Step
from ragen_verl.env.arguments import check_probability, check_whole

__all__ = ["CoordFrozenLake", "FrozenLake"]

_SYMBOLS = {
    "P": "player",
    "_": "ice",
    "O": "hole",
    "G": "goal",
    "X": "player in a hole",
    "√": "player on the goal",
}
_MAX_STEPS = 100


class FrozenLake(Env):
    """## Description

    A square lake of frozen cells and holes; the player must reach the goal. The ice is slippery: a move may go
    sideways. The rules are those of gymnasium's FrozenLake as RAGEN uses it (arXiv 2504.20073 and 2604.06268):
    every episode has a new board, with start and goal on random cells.

    ## Action Space

    The names Left, Down, Right, Up, in this order. Each moves one cell; at the rim the player stays.

    ## Observation Space

    Text. `grid` draws P player, _ ice, O hole, G goal, X player in a hole, √ player on the goal, one line per row
    without separators. `coord` lists start, goal, player and holes as (row, column); `grid_coord` gives both.

    ## Starting State

    Each cell is ice with probability `frozen`, else a hole. Start and goal are two distinct cells drawn uniformly
    and are always free. Boards without a safe path from start to goal are drawn again. The board depends on the
    seed alone, the slips on (seed, rollout index), so the rollouts of a group see one board and slip independently.

    ## Rewards

    +1 for reaching the goal, 0 otherwise.

    ## Episode End

    Terminates on the goal (success) or in a hole; truncates after 100 moves. An action is effective if the player is on
    another cell afterwards, by slipping or not.

    ## Arguments

    - `size=4`: rows and columns, 2 to 50.
    - `frozen=0.8`: probability that a cell is ice. RAGEN 0.8, RAGEN-2 0.9.
    - `success_rate=1/3`: probability that a move goes where intended; the rest is split evenly between the two
      perpendicular directions. RAGEN 1/3 each; RAGEN-2 0.8 by default and 1.0 (no slip) in its experiments.
    - `observation_format="grid"`: grid, coord or grid_coord.

    Registered variant: `CoordFrozenLake-v0` (RAGEN-2: frozen 0.9, no slip, grid_coord).

    ## Version History

    - v0: first version. Unlike the originals, the prompt states the true size of the board, and the rollouts of a group
      do not share their slips.
    """

    actions = ("Left", "Down", "Right", "Up")
    max_actions = 10

    def __init__(
        self,
        size: int = 4,
        frozen: float = 0.8,
        success_rate: float = 1 / 3,
        observation_format: ObservationFormat = "grid",
    ) -> None:
        check_format(observation_format)
        check_whole("FrozenLake's size", size, 2, 50)
        check_probability("FrozenLake's frozen", frozen)
        check_probability("FrozenLake's success_rate", success_rate)
        self.size = size
        self.frozen = float(frozen)
        self.success_rate = float(success_rate)
        self.observation_format = observation_format
        self.symbols = {} if observation_format == "coord" else dict(_SYMBOLS)
        self.instruction = self._instruction()
        self.holes: frozenset[Cell] = frozenset()
        self.origin: Cell = (0, 0)
        self.goal: Cell = (size - 1, size - 1)
        self.player: Cell = self.origin
        self._moves_made = 0

    def _instruction(self) -> str:
        slip = (1 - self.success_rate) / 2
        ice = (
            "Every move goes where you aim."
            if slip == 0
            else f"The ice is slippery: a move goes where you aim with probability {self.success_rate:.2g}, and to "
            f"each of the two sides, at right angles to it, with probability {slip:.2g}."
        )
        return (
            f"You are crossing a frozen lake of {self.size} x {self.size} cells. Walk to the goal and never step into "
            f"a hole: the game ends in either. One move takes you one cell; at the rim you stay where you are. {ice} "
            "Reaching the goal earns 1, anything else 0."
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a board that can be crossed and put the player on its start."""
        super().reset(seed=seed)
        while not self._draw_board():
            pass  # this ends: on 4 / (size * (size + 1)) of all boards start and goal are neighbours, so connected
        self.player = self.origin
        self._moves_made = 0
        return self.render(), {}

    def _draw_board(self) -> bool:
        """Draw holes, start and goal; return whether a safe path connects them."""
        size = self.size
        open_water = np.argwhere(self.np_random.random((size, size)) >= self.frozen)
        start, goal = self.np_random.choice(size * size, 2, replace=False).tolist()
        self.origin, self.goal = divmod(start, size), divmod(goal, size)
        self.holes = frozenset(map(tuple, open_water.tolist())) - {self.origin, self.goal}
        self.player = self.origin
        return bool(self.oracle())

    def step(self, action: str) -> Step:
        """Move one cell, or slip; an unknown name changes nothing."""
        name = self.name_of(action)
        transitions = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        if name is None or self._over():
            return self._result(0.0, valid=name is not None, effective=False)
        before = self.player
        self.player = self._neighbour(before, self._slip(name, transitions))
        self._moves_made += 1
        return self._result(float(self.player == self.goal), valid=True, effective=self.player != before)

    def _result(self, reward: float, *, valid: bool, effective: bool) -> Step:
        over = self._over()
        truncated = not over and self._moves_made >= _MAX_STEPS
        success = self.player == self.goal
        return self.outcome(
            reward, terminated=over, truncated=truncated, success=success, valid=valid, effective=effective
        )

    def _over(self) -> bool:
        return self.player == self.goal or self.player in self.holes

    def _slip(self, name: str, transitions: np.random.Generator) -> str:
        """Return the direction actually taken: the intended one, or one at right angles."""
        # Every move draws exactly once, so that the slip of move k does not depend on the actions.
        draw = transitions.random()
        if draw < self.success_rate:
            return name
        turn = 1 if draw < (1 + self.success_rate) / 2 else -1
        around = self.actions  # Left, Down, Right, Up form a circle, so neighbours are perpendicular
        return around[(around.index(name) + turn) % 4]

    def _neighbour(self, cell: Cell, name: str) -> Cell:
        after = (cell[0] + DIRECTIONS[name][0], cell[1] + DIRECTIONS[name][1])
        return after if self._on_board(after) else cell

    def _on_board(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.size and 0 <= cell[1] < self.size

    def render(self) -> str:
        """Return the board as text, in the wanted format."""
        things = {
            "Start": [self.origin],
            "Goal": [self.goal],
            "Player": [self.player] if not self._over() else [],
            "Player in a hole": [self.player] if self.player in self.holes else [],
            "Player on the goal": [self.player] if self.player == self.goal else [],
            "Holes": self.holes,
        }
        return render(self.observation_format, (self.size, self.size), self._symbol, things)

    def _symbol(self, cell: Cell) -> str:
        if cell == self.player:
            return "X" if cell in self.holes else "√" if cell == self.goal else "P"
        return "O" if cell in self.holes else "G" if cell == self.goal else "_"

    def oracle(self) -> list[str]:
        """Return a shortest safe path to the goal as if no move slipped; [] once the episode is over."""
        if self._over():
            return []
        path = shortest_path(
            self.player,
            arrived=lambda cell: cell == self.goal,
            passable=lambda cell: self._on_board(cell) and cell not in self.holes,
            moves=self.actions,
        )
        return path or []


CoordFrozenLake = partial(FrozenLake, frozen=0.9, success_rate=1.0, observation_format="grid_coord")
