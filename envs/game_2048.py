"""2048: slide numbered tiles so that equal ones merge, up to the target tile."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ragen_verl.env import Env, Step
from ragen_verl.env.arguments import check_probability
from ragen_verl.errors import RecipeError

__all__ = ["Board", "Game2048", "Line", "empty_cells", "moves", "slide"]

Line = tuple[int, ...]
Board = tuple[Line, ...]  # exponents of 2 by row, 0 for an empty cell

_SIZE = 4
_BLOCKED = -0.1


class Game2048(Env):
    """## Description

    Tiles on a 4 x 4 board slide as far as they go; two equal ones that meet merge into one of twice the number. After
    every move that changed the board a new tile appears. Reach the target tile. As in RAGEN-2 (arXiv 2604.06268).

    ## Action Space

    The names Up, Right, Down, Left, in this order.

    ## Observation Space

    Text: the board, one line per row, numbers separated by a blank, a full stop for an empty cell.

    ## Starting State

    Two tiles on random cells. They depend on the seed alone, the tiles that appear later on (seed, rollout index).

    ## Rewards

    With `reward="log"`: 0.1 * log2(1 + s) where s is the sum of the tiles made by merging. With "score": s itself,
    and -0.1 for a move that changes nothing.

    ## Episode End

    Terminates with a tile of `target` or more (success) or when no move changes the board; truncates after twice the
    budget. An action is effective if the board changed. `info` has the score so far and the largest tile.

    ## Arguments

    - `target=2048`: the tile to reach, a power of 2 from 8 to 65536. The budget of actions is 3/4 `target` + 10: a
      move adds 2.2 on average, so `target` takes about `target` / 2.2 moves.
    - `two_prob=0.9`: probability that a new tile is a 2; otherwise it is a 4.
    - `reward="log"`: log or score.

    ## Version History

    - v0: first version. Unlike in the original, whose 700 actions cannot reach 2048, the budget depends on the target,
      and the rollouts of a group do not share the new tiles.
    """

    actions = ("Up", "Right", "Down", "Left")

    def __init__(self, target: int = 2048, two_prob: float = 0.9, reward: Literal["log", "score"] = "log") -> None:
        whole = isinstance(target, int) and not isinstance(target, bool)
        if not whole or not 8 <= target <= 65536 or target.bit_count() != 1:
            raise RecipeError(f"Game2048's target must be a power of 2 from 8 to 65536, not {target!r}.")
        check_probability("Game2048's two_prob", two_prob)
        if reward not in ("log", "score"):
            raise RecipeError(f"Game2048's reward must be 'log' or 'score', not {reward!r}.")
        self.target = target
        self.two_prob = float(two_prob)
        self.reward = reward
        self.max_actions = 3 * target // 4 + 10
        self.instruction = (
            "You are playing 2048. A move slides all tiles up, right, down or left as far as they go; two equal tiles "
            "that meet merge into one of twice the number, and then a new 2 or 4 appears on an empty cell. A full stop "
            f"is an empty cell. Merging earns points; reach a tile of {target} before no move is left."
        )
        self.board: Board = ((0,) * _SIZE,) * _SIZE
        self.score = 0
        self._actions_made = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Place two tiles."""
        super().reset(seed=seed)
        self.board = ((0,) * _SIZE,) * _SIZE
        for _ in range(2):
            self.board = self._with_new_tile(self.np_random)
        self.score = self._actions_made = 0
        return self.render(), {}

    def _with_new_tile(self, rng: np.random.Generator) -> Board:
        where, which = rng.random(2).tolist()
        empty = empty_cells(self.board)
        row, column = empty[int(where * len(empty))]
        return _with_tile(self.board, row, column, 1 if which < self.two_prob else 2)

    def step(self, action: str) -> Step:
        """Slide the tiles; an unknown name changes nothing."""
        name = self.name_of(action)
        transitions = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        if name is None or self._over():
            return self._result(0.0, valid=name is not None, effective=False)
        self._actions_made += 1
        board, gained = slide(self.board, name)
        if board == self.board:
            return self._result(_BLOCKED if self.reward == "score" else 0.0, valid=True, effective=False)
        self.board = board
        self.board = self._with_new_tile(transitions)
        self.score += gained
        reward = float(gained) if self.reward == "score" else 0.1 * math.log2(1 + gained)
        return self._result(reward, valid=True, effective=True)

    def _result(self, reward: float, *, valid: bool, effective: bool) -> Step:
        over = self._over()
        return self.outcome(
            reward,
            terminated=over,
            truncated=not over and self._actions_made >= 2 * self.max_actions,
            success=self._largest() >= self.target,
            valid=valid,
            effective=effective,
            score=float(self.score),
            largest_tile=float(self._largest()),
        )

    def _largest(self) -> int:
        return 2 ** max(map(max, self.board))

    def _over(self) -> bool:
        return self._largest() >= self.target or not moves(self.board)

    def render(self) -> str:
        """Return the board as text."""
        return "\n".join(" ".join(str(2**tile) if tile else "." for tile in row) for row in self.board)

    def oracle(self) -> list[str]:
        """Return a good next move, by looking one new tile ahead; [] once the episode is over."""
        return [] if self._over() else [_best_move(self.board)]


@lru_cache(maxsize=200_000)
def _slide_line(line: Line) -> tuple[Line, int]:
    """Slide a line towards its beginning; return it and the sum of the tiles made by merging."""
    tiles = [tile for tile in line if tile]
    slid, gained, place = [], 0, 0
    while place < len(tiles):
        pair = place + 1 < len(tiles) and tiles[place] == tiles[place + 1]
        slid.append(tiles[place] + pair)
        gained += 2 ** slid[-1] if pair else 0
        place += 1 + pair
    return tuple(slid + [0] * (len(line) - len(slid))), gained


def slide(board: Board, name: str) -> tuple[Board, int]:
    """Return the board after sliding all tiles (without a new tile), and the sum of the tiles made by merging."""
    upright, backwards = name in ("Up", "Down"), name in ("Right", "Down")
    lines = tuple(zip(*board, strict=True)) if upright else board
    slid = [_slide_line(line[::-1] if backwards else line) for line in lines]
    after = tuple(line[::-1] if backwards else line for line, _ in slid)
    return tuple(zip(*after, strict=True)) if upright else after, sum(gained for _, gained in slid)


def moves(board: Board) -> list[str]:
    """Return the names of the moves that change the board."""
    return [name for name in Game2048.actions if slide(board, name)[0] != board]


def empty_cells(board: Board) -> list[tuple[int, int]]:
    """Return (row, column) of the empty cells."""
    return [(row, column) for row in range(_SIZE) for column in range(_SIZE) if not board[row][column]]


def _with_tile(board: Board, row: int, column: int, tile: int) -> Board:
    """Return the board with one more tile."""
    line = (*board[row][:column], tile, *board[row][column + 1 :])
    return (*board[:row], line, *board[row + 1 :])


def _best_move(board: Board) -> str:
    """Return the move with the highest value of the best reply, averaged over the cells on which a 2 may appear."""
    afters = {name: slide(board, name)[0] for name in Game2048.actions}
    return max((name for name in afters if afters[name] != board), key=lambda name: _expected(afters[name]))


def _expected(board: Board) -> float:
    empty = empty_cells(board)
    if len(empty) > 5:
        return _value(board)  # with much room it is not necessary to look ahead
    total = 0.0
    for row, column in empty:
        spawned = _with_tile(board, row, column, 1)
        replies = [after for name in Game2048.actions if (after := slide(spawned, name)[0]) != spawned]
        total += max(map(_value, replies), default=-1e6)
    return total / len(empty)


def _value(board: Board) -> float:
    return sum(map(_line_value, board)) + sum(map(_line_value, zip(*board, strict=True)))


@lru_cache(maxsize=200_000)
def _line_value(line: Line) -> float:
    """The value of a row or column: high for empty cells and neighbours that can merge, low for tiles out of order."""
    steps = [second - first for first, second in pairwise(2.0**tile if tile else 0.0 for tile in line)]
    up, down = sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0)
    mergeable = sum(first == second != 0 for first, second in pairwise(line))
    return 12.0 * line.count(0) + 8.0 * mergeable - 4.0 * min(up, down) ** 0.75
