"""Rubik's cube, 2x2x2: turn the faces until each shows one colour."""

from __future__ import annotations

import itertools
from operator import itemgetter
from typing import Any

from ragen_envs.common.puzzle import Puzzle

from ragen_verl.env import Step
from ragen_verl.env.arguments import check_whole

__all__ = ["SOLVED", "TURNS", "Cube", "RubiksCube", "inverse", "shortest_solution", "solved"]

_FACES = "ULFRBD"
_COLOURS = {"W": "white", "O": "orange", "G": "green", "R": "red", "B": "blue", "Y": "yellow"}

#: Outward direction of each face; x to the right, y up, z towards the viewer.
_NORMAL = {"U": (0, 1, 0), "D": (0, -1, 0), "R": (1, 0, 0), "L": (-1, 0, 0), "F": (0, 0, 1), "B": (0, 0, -1)}
_OPPOSITE = dict(zip("ULFRBD", "DRBLFU", strict=True))

#: Colours of the 24 stickers: the faces in the order of _FACES, each read row by row from outside.
Cube = tuple[str, ...]
SOLVED: Cube = tuple(colour for colour in _COLOURS for _ in range(4))


def _stickers() -> list[tuple[str, tuple[int, int, int]]]:
    """Return (face, corner) of each sticker: each face read row by row as seen from outside, up or back on top."""
    rows = {
        "U": [(x, 1, z) for z in (-1, 1) for x in (-1, 1)],
        "L": [(-1, y, z) for y in (1, -1) for z in (-1, 1)],
        "F": [(x, y, 1) for y in (1, -1) for x in (-1, 1)],
        "R": [(1, y, z) for y in (1, -1) for z in (1, -1)],
        "B": [(x, y, -1) for y in (1, -1) for x in (1, -1)],
        "D": [(x, -1, z) for z in (1, -1) for x in (-1, 1)],
    }
    return [(face, corner) for face in _FACES for corner in rows[face]]


def _clockwise(axis: tuple[int, int, int], v: tuple[int, int, int]) -> tuple[int, int, int]:
    """Turn `v` a quarter clockwise as seen from the tip of the unit vector `axis`."""
    along = sum(a * c for a, c in zip(axis, v, strict=True))
    (a, b, c), (x, y, z) = axis, v
    cross = (y * c - z * b, z * a - x * c, x * b - y * a)  # v x axis
    x, y, z = (n + along * m for n, m in zip(cross, axis, strict=True))
    return x, y, z


def _turns() -> dict[str, itemgetter]:
    """Return for each move the function that turns a cube: sticker k of the result is sticker source[k] before."""
    stickers = _stickers()
    face_of = {normal: face for face, normal in _NORMAL.items()}
    turns = {}
    for face in "UDLRFB":
        axis, source = _NORMAL[face], list(range(24))
        for index, (side, corner) in enumerate(stickers):
            if sum(a * c for a, c in zip(axis, corner, strict=True)) > 0:
                landed = (face_of[_clockwise(axis, _NORMAL[side])], _clockwise(axis, corner))
                source[stickers.index(landed)] = index
        turns[face] = itemgetter(*source)
        turns[face + "'"] = itemgetter(*(source.index(index) for index in range(24)))
    return turns


TURNS = _turns()


class RubiksCube(Puzzle):
    """## Description

    The pocket cube: eight corners, six faces of 2 x 2 stickers. Deterministic, and every turn can be undone. Rules of
    RAGEN-2's environment (arXiv 2604.06268).

    ## Action Space

    The quarter turns U, U', D, D', L, L', R, R', F, F', B, B', in this order: the named face clockwise as seen from
    outside, with ' counter-clockwise.

    ## Observation Space

    Text: one line per face, in the order U L F R B D, with its two rows of stickers, such as "F: GG/RG". A face is read
    from outside, F R B L with U on top, U with B on top, D with F on top.

    ## Starting State

    A solved cube after `scramble` turns drawn uniformly; no turn undoes the one before. A cube that is solved again is
    drawn again. It depends on the seed alone.

    ## Rewards

    1 for solving the cube, 0 otherwise.

    ## Episode End

    Terminates when every face shows one colour, however the cube is held (success); truncates after 20 turns.

    ## Arguments

    - `scramble=5`: turns of the scramble, 1 to 50. RAGEN-2 trains with 1 and gives 5 as the default. Any cube can be
      solved in 14 turns.

    ## Version History

    - v0: first version.
    """

    actions = ("U", "U'", "D", "D'", "L", "L'", "R", "R'", "F", "F'", "B", "B'")
    max_actions = 20
    _limit = 20
    symbols = _COLOURS

    def __init__(self, scramble: int = 5) -> None:
        check_whole("RubiksCube's scramble", scramble, 1, 50)
        self.scramble = scramble
        self.instruction = (
            "You are solving a 2x2x2 Rubik's cube: make every face show one colour. Each line shows a face as two rows "
            "of stickers, seen from outside: F, R, B and L with U on top, U with B on top, D with F on top. U turns "
            "the upper face a quarter clockwise as seen from outside, U' counter-clockwise; likewise D down, L left, "
            "R right, F front and B back. Solving the cube earns 1."
        )
        self.cube: Cube = SOLVED

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Scramble a solved cube."""
        super().reset(seed=seed)
        self.cube = SOLVED
        while solved(self.cube):
            self.cube, last = SOLVED, ""
            for _ in range(self.scramble):
                ways = [name for name in self.actions if name != inverse(last)]
                last = ways[int(self.np_random.integers(len(ways)))]
                self.cube = TURNS[last](self.cube)
        return self.render(), {}

    def step(self, action: str) -> Step:
        """Turn a face; an unknown name turns none."""
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        name = self.name_of(action)
        if name is None or self._solved():
            return self._result(0.0, valid=name is not None, effective=False)
        self.cube = TURNS[name](self.cube)
        self._actions_made += 1
        return self._result(float(self._solved()), valid=True, effective=True)

    def _solved(self) -> bool:
        return solved(self.cube)

    def render(self) -> str:
        """Return the six faces."""
        rows = ["".join(self.cube[first : first + 2]) for first in range(0, 24, 2)]
        return "\n".join(f"{face}: {rows[2 * k]}/{rows[2 * k + 1]}" for k, face in enumerate(_FACES))

    def oracle(self) -> list[str]:
        """Return a shortest solution; [] once the cube is solved."""
        return shortest_solution(self.cube)


def inverse(name: str) -> str:
    """Return the move that undoes `name`; "" for ""."""
    return name.removesuffix("'") if name.endswith("'") else name and name + "'"


def solved(cube: Cube) -> bool:
    """Tell whether every face shows one colour."""
    return all(len(set(cube[first : first + 4])) == 1 for first in range(0, 24, 4))


def shortest_solution(cube: Cube) -> list[str]:
    """Return a shortest solution by a search from both ends.

    A turn of D equals a turn of U with the cube held differently, so turns of U, R and F reach every state. The corner
    at down, left, back then never moves, and its three colours determine the colour of each face.
    """
    if solved(cube):
        return []
    corner = {face: cube[index] for index, (face, where) in enumerate(_stickers()) if where == (-1, -1, -1)}
    home, colour_of = dict(zip(_COLOURS, _FACES, strict=True)), dict(zip(_FACES, _COLOURS, strict=True))
    scheme = corner | {_OPPOSITE[face]: colour_of[_OPPOSITE[home[colour]]] for face, colour in corner.items()}
    goal: Cube = tuple(scheme[face] for face in _FACES for _ in range(4))
    names = ("U", "U'", "R", "R'", "F", "F'")
    came: list[dict[Cube, tuple[Cube, str] | None]] = [{cube: None}, {goal: None}]
    rims = [[cube], [goal]]
    while True:  # this ends: the two searches meet after at most 14 turns
        side = len(rims[1]) < len(rims[0])
        rim = []
        for state, name in itertools.product(rims[side], names):
            following = TURNS[name](state)
            if following in came[side]:
                continue
            came[side][following] = (state, name)
            if following in came[not side]:
                there, back = _trace(came[0], following), _trace(came[1], following)
                return there[::-1] + [inverse(name) for name in back]
            rim.append(following)
        rims[side] = rim


def _trace(came: dict[Cube, tuple[Cube, str] | None], state: Cube) -> list[str]:
    """Return the moves that led to `state`, the last one first."""
    names = []
    while (step := came[state]) is not None:
        state, name = step
        names.append(name)
    return names
