"""Sudoku: fill a grid so that every row, column and box holds each number once."""

from __future__ import annotations

import re
from functools import lru_cache
from math import isqrt
from typing import Any, Literal

import numpy as np
from ragen_envs.common.puzzle import Puzzle

from ragen_verl.env import Step
from ragen_verl.env.arguments import check_choice
from ragen_verl.errors import RecipeError

__all__ = ["EMPTY_SHARE", "Sudoku", "full_grid", "units"]

EMPTY_SHARE = {"easy": 0.4, "medium": 0.5, "hard": 0.6}
_CORRECT, _WRONG, _ILLEGAL, _SOLVED = 1.0, 0.5, -0.1, 10.0
_LONGEST = 100
_CELL = r"row\s*(?P<row>[0-9])\s*,?\s*col(?:umn)?\s*(?P<column>[0-9])"
_ACTIONS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        _CELL + r"\s*(?:is|=|:)\s*(?P<number>[0-9]|empty)",
        r"(?:place|put)?\s*(?P<number>[0-9])\s*(?:at|in|on)\s*" + _CELL,
        r"r(?P<row>[0-9])\s*c(?P<column>[0-9])\s*=\s*(?P<number>[0-9])",
        r"(?P<row>[0-9])\s*,\s*(?P<column>[0-9])\s*,\s*(?P<number>[0-9])",
    )
)


class Sudoku(Puzzle):
    """## Description

    A Sudoku with one solution: each row, column and box holds every number once. Entries may be changed and removed,
    the given numbers may not. As in RAGEN-2 (arXiv 2604.06268), which has only 9 x 9.

    ## Action Space

    Free text, one entry per action: "row 2 column 3 is 4", "place 4 at row 2 column 3", "r2c3=4" or "2,3,4". Rows and
    columns count from 1 at the top left. The number 0, or "row 2 column 3 is empty", removes an entry.

    ## Observation Space

    Text: the grid, with a full stop for an empty cell, and lines between the boxes.

    ## Starting State

    A full grid drawn at random, from which numbers are removed in random order. A number is removed only if the
    remaining ones determine it: it is the only number left for its cell, or its cell is the only place left for it. So
    there is one solution, and it can be found without guessing. It depends on the seed alone.

    ## Rewards

    A correct entry is worth 1, a wrong one that breaks no rule 0.5, an empty cell 0; an action earns the change in
    worth. So the first entry in a cell earns the same as in RAGEN-2, and repeated entries earn nothing. An entry that
    repeats a number in its row, column or box, that concerns a given number or that changes nothing earns -0.1 and is
    not made. The solved grid earns +10.

    ## Episode End

    Terminates when the grid is solved (success); truncates after 200 actions. A text that names no cell and number of
    the grid is not valid; an action is effective if the grid changed.

    ## Arguments

    - `size=4`: rows and columns, 4 or 9.
    - `difficulty="easy"`: easy, medium or hard leaves 40, 50 or 60 % of the cells empty (at size 9 sometimes a few
      less, if no further number can be removed). The budget is two actions per empty cell.

    ## Version History

    - v0: first version. Unlike in the original, the solution is unique and the budget suffices to reach it.
    """

    _limit = 200

    def __init__(self, size: int = 4, difficulty: Literal["easy", "medium", "hard"] = "easy") -> None:
        if isinstance(size, bool) or size not in (4, 9):
            raise RecipeError(f"Sudoku's size must be 4 or 9, not {size!r}.")
        check_choice("Sudoku's difficulty", difficulty, EMPTY_SHARE)
        self.size = int(size)
        self.difficulty = difficulty
        self.holes = round(EMPTY_SHARE[difficulty] * size * size)
        self.max_actions = 2 * self.holes
        box = isqrt(self.size)
        self.instruction = (
            f"You are solving a {size} x {size} Sudoku: every row, every column and every {box} x {box} box holds each "
            f"number from 1 to {size} once. A full stop is an empty cell. Fill in one cell per action, rows and columns"
            ' counted from 1 at the top left, such as "row 2 column 3 is 4"; "row 2 column 3 is empty" takes an entry '
            "back. A correct entry is worth 1, a wrong one that breaks no rule 0.5, one that breaks a rule costs 0.1, "
            "and the solved grid earns 10."
        )
        self.solution: list[int] = []
        self.given: frozenset[int] = frozenset()
        self.grid: list[int] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a puzzle."""
        super().reset(seed=seed)
        self.solution = full_grid(self.size, self.np_random)
        self.grid = _puzzle(self.solution, self.size, self.holes, self.np_random)
        self.given = frozenset(cell for cell, number in enumerate(self.grid) if number)
        return self.render(), {}

    def step(self, action: str) -> Step:
        """Make or remove an entry; a text that is no entry changes nothing."""
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        entry = self._entry(action)
        if entry is None or self._solved():
            return self._result(0.0, valid=entry is not None, effective=False)
        cell, number = entry
        self._actions_made += 1
        if not self._legal(cell, number):
            return self._result(_ILLEGAL, valid=True, effective=False)
        before = self._worth(cell)
        self.grid[cell] = number
        reward = self._worth(cell) - before + (_SOLVED if self._solved() else 0.0)
        return self._result(reward, valid=True, effective=True)

    def _entry(self, action: Any) -> tuple[int, int] | None:
        """Return (cell, number) of the entry in `action`, with number 0 for a removal; None if there is none."""
        if not isinstance(action, str) or len(action) > _LONGEST:
            return None
        match = next(filter(None, (pattern.fullmatch(action.strip()) for pattern in _ACTIONS)), None)
        if match is None:
            return None
        row, column = int(match["row"]), int(match["column"])
        number = 0 if match["number"].lower() == "empty" else int(match["number"])
        inside = 1 <= row <= self.size and 1 <= column <= self.size and number <= self.size
        return ((row - 1) * self.size + column - 1, number) if inside else None

    def _legal(self, cell: int, number: int) -> bool:
        if cell in self.given or self.grid[cell] == number:
            return False
        return not number or all(self.grid[other] != number for unit in units(self.size)[cell] for other in unit)

    def _worth(self, cell: int) -> float:
        number = self.grid[cell]
        return _CORRECT if number == self.solution[cell] else _WRONG if number else 0.0

    def _solved(self) -> bool:
        return self.grid == self.solution

    def render(self) -> str:
        """Return the grid as text."""
        size, box = self.size, isqrt(self.size)
        signs = [str(number or ".") for number in self.grid]
        rule = "-+-".join(["-" * (2 * box - 1)] * box)
        lines = []
        for row in range(0, len(signs), size):
            parts = [" ".join(signs[place : place + box]) for place in range(row, row + size, box)]
            if lines and row % (size * box) == 0:
                lines.append(rule)
            lines.append(" | ".join(parts))
        return "\n".join(lines)

    def oracle(self) -> list[str]:
        """Return the actions that solve the grid, after removing wrong entries; [] once it is solved."""
        wrong = [cell for cell, number in enumerate(self.grid) if number not in (0, self.solution[cell])]
        missing = [cell for cell, number in enumerate(self.grid) if number != self.solution[cell]]
        taken_back = [f"{self._name(cell)} is empty" for cell in wrong]
        return taken_back + [f"{self._name(cell)} is {self.solution[cell]}" for cell in missing]

    def random_action(self, rng: np.random.Generator) -> str:
        """Return any number in any empty cell (if none is empty, in any cell whose number is not given)."""
        free = [cell for cell, number in enumerate(self.grid) if not number]
        free = free or [cell for cell in range(len(self.grid)) if cell not in self.given]
        cell = free[int(rng.integers(len(free)))]
        return f"{self._name(cell)} is {int(rng.integers(1, self.size + 1))}"

    def _name(self, cell: int) -> str:
        return f"row {cell // self.size + 1} column {cell % self.size + 1}"


@lru_cache(maxsize=2)
def units(size: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return for each cell the other cells of its row, of its column and of its box."""
    box = isqrt(size)
    places = [divmod(cell, size) for cell in range(size * size)]

    def others(cell: int, same: Any) -> tuple[int, ...]:
        return tuple(other for other in range(size * size) if other != cell and same(*places[cell], *places[other]))

    return tuple(
        (
            others(cell, lambda row, column, r, c: row == r),
            others(cell, lambda row, column, r, c: column == c),
            others(cell, lambda row, column, r, c: (row // box, column // box) == (r // box, c // box)),
        )
        for cell in range(size * size)
    )


def full_grid(size: int, rng: np.random.Generator) -> list[int]:
    """Return a solved grid, row by row, drawn with `rng`: the cell with the fewest candidates first."""
    around = [sorted({other for unit in three for other in unit}) for three in units(size)]
    grid = [0] * (size * size)

    def fill(candidates: dict[int, int]) -> bool:
        # candidates: empty cell -> mask of the numbers it may hold
        if not candidates:
            return True
        cell = min(candidates, key=lambda place: candidates[place].bit_count())
        for number in rng.permutation(size).tolist():
            if not candidates[cell] >> number & 1:
                continue
            rest = candidates.copy()
            del rest[cell]
            for other in around[cell]:
                if other in rest:
                    rest[other] &= ~(1 << number)
            grid[cell] = number + 1
            if fill(rest):
                return True
        return False

    fill(dict.fromkeys(range(size * size), (1 << size) - 1))
    return grid


def _puzzle(solution: list[int], size: int, holes: int, rng: np.random.Generator) -> list[int]:
    """Return `solution` with up to `holes` numbers replaced by 0, each of which follows from the remaining ones.

    If they are put back in reverse order, each is a single: the only number left for its cell, or a number with only
    one place left in a row, column or box. So the solution is unique.
    """
    around = units(size)
    grid = list(solution)

    def allowed(cell: int, number: int) -> bool:
        return all(grid[other] != number for unit in around[cell] for other in unit)

    def follows(cell: int, number: int) -> bool:
        if sum(allowed(cell, other) for other in range(1, size + 1)) == 1:
            return True
        return any(all(grid[other] or not allowed(other, number) for other in unit) for unit in around[cell])

    for cell in rng.permutation(size * size).tolist():
        if holes == 0:
            break
        number, grid[cell] = grid[cell], 0
        if follows(cell, number):
            holes -= 1
        else:
            grid[cell] = number  # if it does not follow now, it will not follow from fewer numbers
    return grid
