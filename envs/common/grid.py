"""Common parts of the grid environments: directions, text renderings and a shortest-path search.

Cells are (row, column), (0, 0) at the top left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from ragen_verl.errors import RecipeError

__all__ = ["DIRECTIONS", "OBSERVATION_FORMATS", "Cell", "ObservationFormat", "check_format", "render", "shortest_path"]

Cell = tuple[int, int]
ObservationFormat = Literal["grid", "coord", "grid_coord"]
OBSERVATION_FORMATS = ("grid", "coord", "grid_coord")

DIRECTIONS: dict[str, Cell] = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}


def check_format(observation_format: str) -> None:
    """Raise RecipeError unless the format is one of `OBSERVATION_FORMATS`."""
    if observation_format not in OBSERVATION_FORMATS:
        raise RecipeError(f"observation_format must be one of {OBSERVATION_FORMATS}, not {observation_format!r}.")


def render(
    observation_format: str, size: Cell, symbol_at: Callable[[Cell], str], things: Mapping[str, Iterable[Cell]]
) -> str:
    """Return the text of a grid world.

    Args:
        observation_format: "grid" draws one symbol per cell, rows on lines of their own without separators; "coord"
            lists the cells of each kind of thing; "grid_coord" gives the list and then the drawing.
        size: (rows, columns).
        symbol_at: the symbol of a cell.
        things: kind -> its cells, in the order listed; kinds without a cell are left out.
    """
    rows, columns = size
    drawing = "\n".join("".join(symbol_at((row, column)) for column in range(columns)) for row in range(rows))
    if observation_format == "grid":
        return drawing
    lines = [f"Board: {rows} rows x {columns} columns, (row, column) from (0, 0) at the top left."]
    lines += [f"{kind}: {', '.join(map(str, sorted(cells)))}" for kind, cells in things.items() if cells]
    listing = "\n".join(lines)
    return listing if observation_format == "coord" else f"Coordinates:\n{listing}\nGrid Map:\n{drawing}"


def shortest_path(
    start: Cell, arrived: Callable[[Cell], bool], passable: Callable[[Cell], bool], moves: Sequence[str]
) -> list[str] | None:
    """Return the names of the fewest moves from `start` to a cell that satisfies `arrived`, or None.

    `passable` must be false outside the board. Among equally short paths the order of `moves` decides.
    """
    came: dict[Cell, tuple[Cell, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        if arrived(cell):
            path = []
            while (step := came[cell]) is not None:
                cell, move = step
                path.append(move)
            return path[::-1]
        for move in moves:
            after = (cell[0] + DIRECTIONS[move][0], cell[1] + DIRECTIONS[move][1])
            if after not in came and passable(after):
                came[after] = (cell, move)
                queue.append(after)
    return None
