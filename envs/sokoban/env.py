"""Sokoban: push every box onto a target; a box in a corner cannot be moved again."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, Literal

from ragen_envs.common.grid import DIRECTIONS, Cell, ObservationFormat, check_format, render
from ragen_envs.common.puzzle import Puzzle
from ragen_envs.sokoban.levels import Level, generate

from ragen_verl.env import Step
from ragen_verl.env.arguments import check_choice, check_whole
from ragen_verl.errors import RecipeError

__all__ = ["CoordSokoban", "LargerSokoban", "Sokoban", "SokobanNewVocab"]

_MEANINGS = (
    "wall",
    "empty floor",
    "target",
    "box on a target",
    "box",
    "player",
    "player on a target",
)
_SEARCHES = ("breadth_first", "depth_first")
_VOCABULARIES = {"default": "#_O√XPS", "letters": "W.GCBA@"}
_STEP, _PLACED, _REMOVED, _SOLVED = -0.1, 1.0, -1.0, 10.0
_ORACLE_STATES = 200_000


class Sokoban(Puzzle):
    """## Description

    A room with boxes and as many targets; the player pushes boxes, one at a time, and cannot pull. Deterministic,
    but a push can be irreversible. As in RAGEN (arXiv 2504.20073), which takes it from gym-sokoban.

    ## Action Space

    The names Up, Down, Left, Right, in this order. Each moves one cell and pushes the box in front, if any. Nothing
    moves if there is a wall in front, or a wall or another box behind the box.

    ## Observation Space

    Text. `grid` draws # wall, _ floor, O target, √ box on a target, X box, P player, S player on a target, one line
    per row without separators. `coord` lists all targets, covered ones too, boxes and player as (row, column), not the
    walls; `grid_coord` gives both.

    ## Starting State

    A room that a random walk carves (`ragen_envs.sokoban.levels`); it is solvable by construction. It depends on the
    seed alone.

    ## Rewards

    -0.1 for every action, +1 for pushing a box onto a target, -1 for pushing one off, +10 when all are on targets.

    ## Episode End

    Terminates when all boxes are on targets (success); truncates after 100 actions. An action is effective if the
    player moved.

    ## Arguments

    - `dim=(6, 6)`: rows and columns of the board, its border of walls included, each 5 to 20.
    - `boxes=1`: number of boxes, 1 to 5.
    - `search_depth=300`: the number of steps that the level generator may go back from the solved room.
    - `observation_format="grid"`: grid, coord or grid_coord.
    - `vocabulary="default"`: "letters" draws W wall, . floor, G target, C box on a target, B box, A player,
      @ player on a target.
    - `search="breadth_first"`: how the level generator searches; "depth_first" draws from the distribution of RAGEN's
      released generator. With one box the two are similar: shortest solutions of 4.1 and 4.0 moves on average on 6 x 6.
      With two boxes breadth first gives harder levels: 6.6 instead of 5.8 moves on 8 x 8 with search depth 10.

    Registered variants: `SimpleSokoban-v0` (these defaults), `LargerSokoban-v0` (8 x 8, 2 boxes, search depth 10,
    depth_first), `SokobanNewVocab-v0` (letters, search depth 30; the paper's SokobanNewVocab), `CoordSokoban-v0`
    (grid_coord).

    ## Version History

    - v0: first version. Levels come from this package's own generator, whose random stream is not gym-sokoban's.
    """

    actions = ("Up", "Down", "Left", "Right")
    max_actions = 10
    _limit = 100

    def __init__(
        self,
        dim: tuple[int, int] = (6, 6),
        boxes: int = 1,
        search_depth: int = 300,
        observation_format: ObservationFormat = "grid",
        vocabulary: Literal["default", "letters"] = "default",
        search: Literal["breadth_first", "depth_first"] = "breadth_first",
    ) -> None:
        check_format(observation_format)
        check_choice("Sokoban's search", search, _SEARCHES)
        check_choice("Sokoban's vocabulary", vocabulary, _VOCABULARIES)
        self.dim: Any = tuple(dim) if hasattr(dim, "__iter__") else ()
        if len(self.dim) != 2 or not all(isinstance(n, int) and 5 <= n <= 20 for n in self.dim):
            raise RecipeError(f"Sokoban's dim must be two integers from 5 to 20, not {dim!r}.")
        check_whole("Sokoban's boxes", boxes, 1, 5)
        check_whole("Sokoban's search_depth", search_depth, 3)
        self.boxes_wanted = boxes
        self.search_depth = search_depth
        self.search = search
        self.observation_format = observation_format
        self._letters: Any = _VOCABULARIES[vocabulary]
        self.symbols = {} if observation_format == "coord" else dict(zip(self._letters, _MEANINGS, strict=True))
        self.instruction = self._instruction()
        self.level: Level | None = None
        self.player = 0
        self.boxes = 0

    def _instruction(self) -> str:
        task = "the box onto the target" if self.boxes_wanted == 1 else f"all {self.boxes_wanted} boxes onto targets"
        return (
            f"You are solving a Sokoban puzzle: push {task}. You move one cell up, down, left or right. Moving into a "
            "box pushes it one cell further, if there is neither a wall nor another box behind it; walls stop you. "
            "You cannot pull, so a box in a corner stays there: plan ahead. Every action costs 0.1, a box pushed onto "
            "a target earns 1 (pushed off again, it costs 1), and finishing the puzzle earns 10."
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a level."""
        super().reset(seed=seed)
        depth_first = self.search == "depth_first"
        rows, columns = self.dim
        self.level = generate(
            self.np_random, rows, columns, self.boxes_wanted, self.search_depth, depth_first=depth_first
        )
        self.player, self.boxes = self.level.player, self.level.boxes
        return self.render(), {}

    def step(self, action: str) -> Step:
        """Move or push; an unknown name changes nothing."""
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        name = self.name_of(action)
        if name is None or self._solved():
            return self._result(0.0, valid=name is not None, effective=False)
        placed, player = self._placed(self.boxes), self.player
        self.player, self.boxes = self.after(name, self.player, self.boxes)
        self._actions_made += 1
        gained = self._placed(self.boxes) - placed
        reward = _STEP + (_PLACED if gained > 0 else _REMOVED if gained < 0 else 0.0)
        reward += _SOLVED if self._solved() else 0.0
        return self._result(reward, valid=True, effective=self.player != player)

    def after(self, name: str, player: int, boxes: int) -> tuple[int, int]:
        """Return (player, mask of boxes) after the move `name`; unchanged if the move is blocked."""
        down, right = DIRECTIONS[name]
        delta = down * self.dim[1] + right
        ahead, beyond = player + delta, player + 2 * delta
        if self.level.walls >> ahead & 1:
            return player, boxes
        if not boxes >> ahead & 1:
            return ahead, boxes
        if (self.level.walls | boxes) >> beyond & 1:
            return player, boxes
        return ahead, boxes ^ (1 << ahead | 1 << beyond)

    def _placed(self, boxes: int) -> int:
        return (boxes & self.level.targets).bit_count()

    def _solved(self) -> bool:
        return self.boxes == self.level.targets

    def render(self) -> str:
        """Return the board as text, in the wanted format."""
        if self.level is None:
            return ""
        targets, boxes, player = self.level.targets, self.boxes, 1 << self.player
        things = {
            "Targets": self._cells(targets),
            "Boxes": self._cells(boxes & ~targets),
            "Boxes on a target": self._cells(boxes & targets),
            "Player": self._cells(player & ~targets),
            "Player on a target": self._cells(player & targets),
        }
        return render(self.observation_format, self.dim, self._symbol, things)

    def _cells(self, mask: int) -> list[Cell]:
        return [divmod(cell, self.dim[1]) for cell in range(mask.bit_length()) if mask >> cell & 1]

    def _symbol(self, cell: Cell) -> str:
        wall, floor, target, placed, box, player, player_on_target = self._letters
        index = cell[0] * self.dim[1] + cell[1]
        on_target = self.level.targets >> index & 1
        if self.level.walls >> index & 1:
            return wall
        if index == self.player:
            return player_on_target if on_target else player
        if self.boxes >> index & 1:
            return placed if on_target else box
        return target if on_target else floor

    def oracle(self) -> list[str]:
        """Return a shortest solution from the current state.

        It is [] if the level is solved, cannot be solved any more, or needs a search of more than 200,000 states.
        """
        if self.level is None or self._solved():
            return []
        dead = self._dead_cells()
        start = (self.player, self.boxes)
        came: dict[tuple[int, int], tuple[tuple[int, int], str] | None] = {start: None}
        queue = deque([start])
        while queue and len(came) < _ORACLE_STATES:
            state = queue.popleft()
            for name in self.actions:
                following = self.after(name, *state)
                if following in came or following[1] & dead:
                    continue
                came[following] = (state, name)
                if following[1] == self.level.targets:
                    return _path(came, following)
                queue.append(following)
        return []

    def _dead_cells(self) -> int:
        """Return the mask of cells from which a box can reach no target, even on a board without other boxes."""
        walls, columns = self.level.walls, self.dim[1]
        alive = self.level.targets
        pending = [cell for cell in range(alive.bit_length()) if alive >> cell & 1]
        while pending:
            cell = pending.pop()
            for down, right in DIRECTIONS.values():
                # Pull the box one cell back: the player needs the box's new cell and the cell behind it.
                delta = down * columns + right
                back = cell + delta
                if not (walls | alive) >> back & 1 and not walls >> back + delta & 1:
                    alive |= 1 << back
                    pending.append(back)
        return ~alive & ((1 << self.dim[0] * columns) - 1)


def _path(came: dict, state: tuple[int, int]) -> list[str]:
    names = []
    while (step := came[state]) is not None:
        state, name = step
        names.append(name)
    return names[::-1]


LargerSokoban = partial(Sokoban, dim=(8, 8), boxes=2, search_depth=10, search="depth_first")
SokobanNewVocab = partial(Sokoban, search_depth=30, vocabulary="letters")
CoordSokoban = partial(Sokoban, observation_format="grid_coord")
