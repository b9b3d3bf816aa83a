"""Sokoban levels: drawn at random in bounded time, and solvable by construction.

A level is made in the same way as in RAGEN (arXiv 2504.20073, after gym-sokoban): a random walk carves a room, targets
and player are placed on its floor, the boxes start on the targets and are pulled away from them in a search for the
hardest arrangement. Every pull can be undone by a push, so every level found this way can be solved. There are two such
searches: breadth first, which finds the hardest arrangement, and depth first, as in RAGEN's released code.

Boards are flat: cell (row, column) is row * columns + column, and sets of cells are bit masks in ints.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ragen_verl.errors import RecipeError

__all__ = ["Level", "carve", "generate", "pull_apart", "pull_apart_depth_first"]

# Shapes carved around the walker, as (row, column) offsets: two corridors, two corners, a square.
_SHAPES = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
)
_HEADINGS = ((-1, 0), (1, 0), (0, -1), (0, 1))
_TURN_PROBABILITY = 0.35
_MAX_STATES = 20_000  # limit of one search, about 50 ms; a room of 8x8 with 2 boxes has about 3000 states
_MAX_TRIES = 200


@dataclass(frozen=True)
class Level:
    """A level, as cells of a flat board.

    Attributes:
        rows, columns: size of the board, walls included.
        walls: mask of the walls.
        targets, boxes: masks of equally many cells.
        player: cell of the player.
    """

    rows: int
    columns: int
    walls: int
    targets: int
    boxes: int
    player: int


def generate(
    rng: np.random.Generator, rows: int, columns: int, boxes: int, search_depth: int, *, depth_first: bool = False
) -> Level:
    """Draw a level; the same state of `rng` gives the same level.

    Args:
        rng: the only source of randomness. After a room that does not work, the next is drawn from the same stream.
        rows, columns: size of the board, its border of walls included.
        boxes: number of boxes and targets.
        search_depth: how many player steps the search may go back from the solved room; a solution has fewer steps.
        depth_first: draw from the distribution of RAGEN's released generator; otherwise levels are a little harder.

    Raises:
        RecipeError: 200 rooms in succession had no place for the boxes or no way to move them.
    """
    for _ in range(_MAX_TRIES):
        floor = carve(rng, rows, columns, beyond=depth_first)
        cells = [cell for cell in range(rows * columns) if floor >> cell & 1]
        if len(cells) <= boxes + 1:
            continue
        placed = rng.choice(len(cells), boxes + 1, replace=False).tolist()
        player, *targets = (cells[index] for index in placed)
        search = pull_apart_depth_first if depth_first else pull_apart
        found = search(floor, columns, player, targets, search_depth)
        if found is None:
            continue
        player, mask, displacement = found
        player = _step_aside(rng, floor & ~mask, columns, player, displacement)
        walls = ~floor & ((1 << rows * columns) - 1)
        return Level(rows, columns, walls, _mask(targets), mask, player)
    raise RecipeError(
        f"No Sokoban level of {rows} x {columns} with {boxes} boxes in {_MAX_TRIES} tries: use a larger dim, fewer "
        "boxes or a larger search_depth."
    )


def carve(rng: np.random.Generator, rows: int, columns: int, *, beyond: bool = False) -> int:
    """Return the floor of a room as a mask: the trace of a random walk that carves a shape at every step.

    With `beyond` the walk may start on the lower and right border, as in the released code; its first step then goes
    inside.
    """
    steps = int(1.7 * (rows + columns))
    turns = (rng.random(steps) < _TURN_PROBABILITY).tolist()
    first_heading, *headings = rng.integers(0, len(_HEADINGS), steps + 1).tolist()
    shapes = rng.integers(0, len(_SHAPES), steps).tolist()
    row = int(rng.integers(1, rows - 1 + beyond))
    column = int(rng.integers(1, columns - 1 + beyond))
    down, right = _HEADINGS[first_heading]
    floor = 0
    for turn, heading, shape in zip(turns, headings, shapes, strict=True):
        if turn:
            down, right = _HEADINGS[heading]
        row = min(max(row + down, 1), rows - 2)
        column = min(max(column + right, 1), columns - 2)
        for offset_down, offset_right in _SHAPES[shape]:
            carved_row, carved_column = row + offset_down, column + offset_right
            if 0 < carved_row < rows - 1 and 0 < carved_column < columns - 1:
                floor |= 1 << carved_row * columns + carved_column
    return floor


def pull_apart(floor: int, columns: int, player: int, targets: list[int], depth: int) -> tuple[int, int, int] | None:
    """Search the states reachable by pulling from the solved room for the hardest one.

    The objective is RAGEN's: (changes of the box that is pulled) x (sum over the boxes of the Manhattan distance to
    the target they came from), over states in which every target is uncovered. As there, a step drags along the box
    behind the player if there is one.

    This search is not RAGEN's (`pull_apart_depth_first` is). It is breadth first and visits each arrangement of player
    and boxes once. It counts the changes on a shortest way to the arrangement, so a high score means that the boxes
    really have to be pushed in turn, and `depth` bounds the length of a solution. With one box both searches prefer the
    largest distance: 6 x 6 levels need 4.1 moves here and 4.0 there; with two boxes on 8 x 8 and a depth of 10 they
    need 6.6 and 5.8 moves (means of shortest solutions).

    Args:
        floor: mask of the cells that are not walls.
        columns: the number of columns of the board.
        player: the cell to start from.
        targets: cells of the targets; box k starts on target k.
        depth: a state is considered if it is fewer than `depth` steps away.

    Returns:
        (player, mask of the boxes, sum of the distances) of the best state, and of the nearest of several; None if
        every state has a box on a target.
    """
    size = floor.bit_length()
    ways = [_ways(floor, columns, cell) for cell in range(size)]
    away = [_distances(target, columns, size) for target in targets]
    on_target = _mask(targets)
    best_score, best = 0, None
    # A configuration is the state without the player; a step that pulls no box does not change it.
    solved = (on_target, tuple(targets), -1, 0, 0)  # mask, cell of each box, last box pulled, changes, distance
    frontier = [(player, solved)]
    shift = size.bit_length()
    seen = {on_target << shift | player}
    for _ in range(depth - 1):
        following = []
        for here, configuration in frontier:
            mask = configuration[0]
            for there, there_bit, behind, behind_bit in ways[here]:
                if mask & there_bit:
                    continue
                if mask & behind_bit:
                    pulled_mask = mask ^ behind_bit | 1 << here
                    key = pulled_mask << shift | there
                    if key in seen:
                        continue
                    seen.add(key)
                    _, cells, last, changes, distance = configuration
                    box = cells.index(behind)
                    changes += box != last
                    distance += away[box][here] - away[box][behind]
                    pulled = (pulled_mask, (*cells[:box], here, *cells[box + 1 :]), box, changes, distance)
                    following.append((there, pulled))
                    if changes * distance > best_score and not pulled_mask & on_target:
                        best_score, best = changes * distance, (there, pulled_mask, distance)
                else:
                    key = mask << shift | there
                    if key not in seen:
                        seen.add(key)
                        following.append((there, configuration))
        frontier = following
        if not frontier or len(seen) > _MAX_STATES:
            break
    return best


def pull_apart_depth_first(
    floor: int, columns: int, player: int, targets: list[int], depth: int
) -> tuple[int, int, int] | None:
    """Search as `pull_apart` does, in the order of RAGEN's released generator; arguments and result are the same.

    Depth first, Up before Down, Left and Right: an arrangement is scored on the way that reached it first, and is not
    visited again on a shorter way. A state counts if the player is on no target. Two equal arrangements are different
    if in one of them a box has left its target and returned. An arrangement is at most `depth - 2` steps away.
    """
    size = floor.bit_length()
    ways = [_ways(floor, columns, cell) for cell in range(size)]
    away = [_distances(target, columns, size) for target in targets]
    on_target = _mask(targets)
    best_score, best = 0, None
    seen: set[tuple[int, int, int]] = set()
    # player, mask of the boxes, mask of those that were pulled, cells, last box pulled, changes, distance, steps left
    stack = [(player, on_target, 0, tuple(targets), -1, 0, 0, depth - 1)]
    while stack and len(seen) < _MAX_STATES:
        here, mask, moved, cells, last, changes, distance, left = stack.pop()
        if left <= 0 or (here, mask, moved) in seen:
            continue
        seen.add((here, mask, moved))
        if changes * distance > best_score and not (mask | 1 << here) & on_target:
            best_score, best = changes * distance, (here, mask, distance)
        for there, there_bit, behind, behind_bit in reversed(ways[here]):
            if mask & there_bit:
                continue
            if not mask & behind_bit:
                stack.append((there, mask, moved, cells, last, changes, distance, left - 1))
                continue
            box = cells.index(behind)
            pulled = mask ^ behind_bit | 1 << here, moved & ~behind_bit | 1 << here
            further = distance + away[box][here] - away[box][behind]
            following = (*cells[:box], here, *cells[box + 1 :])
            stack.append((there, *pulled, following, box, changes + (box != last), further, left - 1))
    return best


def _ways(floor: int, columns: int, cell: int) -> list[tuple[int, int, int, int]]:
    """Return, for each step from `cell`: the new cell, its bit, the cell behind `cell`, its bit."""
    if not floor >> cell & 1:
        return []
    deltas = (-columns, columns, -1, 1)
    return [(cell + d, 1 << cell + d, cell - d, 1 << cell - d) for d in deltas if floor >> cell + d & 1]


def _distances(target: int, columns: int, size: int) -> list[int]:
    row, column = divmod(target, columns)
    return [abs(cell // columns - row) + abs(cell % columns - column) for cell in range(size)]


def _mask(cells: list[int]) -> int:
    return sum(1 << cell for cell in cells)


def _step_aside(rng: np.random.Generator, free: int, columns: int, player: int, displacement: int) -> int:
    """In some levels, move the player 1 to 3 steps away from its place after the search, over cells not yet visited.

    RAGEN added this: otherwise the player would always stand beside the box that was pulled last. The probability is
    0.5, and 0.8 in levels that one push would solve.
    """
    if rng.random() >= (0.8 if displacement == 1 else 0.5):
        return player
    for _ in range(3):
        free &= ~(1 << player)
        ways = [player + delta for delta in (-columns, columns, -1, 1) if free >> player + delta & 1]
        if not ways:
            break
        player = ways[int(rng.integers(len(ways)))]
        if rng.random() >= 0.5:
            break
    return player
