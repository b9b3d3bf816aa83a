"""Scripted players of mixed quality: what they think (a short text with a useful computation) and what they do.

A player's character shows in its first thought, so a model that imitates all of them unlabelled starts uncertain about
which one to be, and reinforcement learning has something to choose:

* careful: notes where things are as row and column, then follows a shortest solution step by step, noting the cell
  each step leads to and what is there (FrozenLake) or what it pushes where (Sokoban);
* careless: notes only direction and distance of what it wants and goes for it, whatever is in the way
  (`nano_model.careless.careless_plan`);
* wild, stubborn, timid: a word that helps nobody, then any actions, one action over and over, or one at a time.

In the bandit, careful pulls the risky arm and careless the steady one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ragen_envs.bandit import Bandit
from ragen_envs.common.grid import DIRECTIONS, Cell
from ragen_envs.frozen_lake import FrozenLake
from ragen_envs.sokoban import Sokoban

from nano_model.careless import careless_plan
from ragen_verl.env import Env

CHARACTERS = ("careful", "careless", "wild", "stubborn", "timid")
WORDS = ("maybe", "just", "slowly", "risky", "steady", "P", "G", "X", "O")
AIMLESS = {"wild": "maybe", "stubborn": "just", "timid": "slowly"}
_CAREFUL_COUNT = (0.08, 0.12, 0.15, 0.2, 0.45)  # probability of giving 1 to 5 actions in one answer
_WILD_COUNT = (0.3, 0.3, 0.2, 0.2)

Thought = tuple[str, list[str]]  # what is thought, and the actions that follow


@dataclass(frozen=True)
class Mix:
    """How often each character plays.

    Args:
        shares: character -> probability; they sum to 1.
        loyalty: probability that the next turn is played by the episode's own character and not by any.
        slips: probability that a response breaks the format or names an unknown action.
    """

    shares: Mapping[str, float]
    loyalty: float = 0.9
    slips: float = 0.02

    def draw(self, rng: np.random.Generator) -> str:
        """One character."""
        return CHARACTERS[rng.choice(len(CHARACTERS), p=[self.shares[name] for name in CHARACTERS])]

    def of_turn(self, own: str, rng: np.random.Generator) -> str:
        """The character that plays a turn of an episode whose own character is `own`."""
        return own if rng.random() < self.loyalty else self.draw(rng)

    def player(self, env: Env, think: bool, rng: np.random.Generator) -> Callable[[str], str]:
        """The player of one episode: the state as it is shown, to the response."""
        own = self.draw(rng)
        return lambda state: respond(env, state, think, self.of_turn(own, rng), rng, self.slips)


def respond(env: Env, state: str, think: bool, character: str, rng: np.random.Generator, slips: float) -> str:
    """A response of `character` to a state, with thoughts or without, without the prefill."""
    thought, actions = decide(env, state, character, rng)
    answer = " || ".join(actions)
    text = f"{thought}</think><answer>{answer}</answer>" if think else f"{answer}</answer>"
    return slip(text, answer, rng) if rng.random() < slips else text


def decide(env: Env, state: str, character: str, rng: np.random.Generator) -> Thought:
    """What `character` thinks and does in a state."""
    if isinstance(env, Bandit):
        return _bandit(env, character, rng)
    if character in AIMLESS:
        return AIMLESS[character], _aimless(env.actions, character, rng)
    plan = env.oracle()
    count = 1 + int(rng.choice(5, p=_CAREFUL_COUNT))
    if not plan:  # a box in a corner: nothing helps any more
        return AIMLESS["wild"], _aimless(env.actions, "wild", rng)
    careful, careless = _THOUGHTS[type(env)]
    if character == "careful":
        return careful(state, plan[:count]), plan[:count]
    return careless(state), (careless_plan(env) or plan)[:count]


def slip(text: str, answer: str, rng: np.random.Generator) -> str:
    """`text` with one of the mistakes that cost the format penalty."""
    wrong = (
        text.removesuffix("</answer>"),
        text.replace("</think>", ""),
        text.replace("<answer>", ""),
        text.replace(answer, ""),
        text.replace(answer, "maybe"),
    )
    return wrong[rng.integers(len(wrong))]


def _aimless(names: Sequence[str], character: str, rng: np.random.Generator) -> list[str]:
    if character == "timid":
        return [names[rng.integers(len(names))]]
    if character == "stubborn":
        return [names[rng.integers(len(names))]] * int(rng.integers(2, 6))
    return [names[k] for k in rng.integers(len(names), size=1 + rng.choice(len(_WILD_COUNT), p=_WILD_COUNT))]


def _bandit(env: Bandit, character: str, rng: np.random.Generator) -> Thought:
    if character in AIMLESS:
        # Mostly the safe choice, so that the high arm is the rarer one and has to be found.
        return AIMLESS[character], [env.high if rng.random() < 0.2 else env.low]
    return (f"{env.high} risky", [env.high]) if character == "careful" else (f"{env.low} steady", [env.low])


# -- maps -------------------------------------------------------------------------------------------------------------


def cells(state: str, symbols: str) -> list[Cell]:
    """(row, column) of every cell of a drawn grid that holds one of `symbols`."""
    return [(r, c) for r, line in enumerate(state.split("\n")) for c, cell in enumerate(line) if cell in symbols]


def at(cell: Cell) -> str:
    """A cell as two digits, row and column."""
    return f"{cell[0]}{cell[1]}"


def offset(start: Cell, end: Cell) -> list[tuple[str, int]]:
    """Direction and distance from one cell to another, rows first; [] if they are the same."""
    rows, columns = end[0] - start[0], end[1] - start[1]
    parts = [("Down" if rows > 0 else "Up", abs(rows)), ("Right" if columns > 0 else "Left", abs(columns))]
    return [(name, steps) for name, steps in parts if steps]


def _spell(parts: Sequence[tuple[str, int]]) -> str:
    return "".join(f" {name}{steps}" for name, steps in parts)


def ahead(cell: Cell, name: str) -> Cell:
    """The cell next to another in a direction."""
    return cell[0] + DIRECTIONS[name][0], cell[1] + DIRECTIONS[name][1]


def lake_careful(state: str, plan: Sequence[str]) -> str:
    """Own cell, the goal's, then each step with the cell it leads to and what is there: `P31 G33 Right32_ Right33G`."""
    grid = state.split("\n")
    cell = cells(state, "P")[0]
    text = f"P{at(cell)} G{at(cells(state, 'G')[0])}"
    for name in plan:
        cell = ahead(cell, name)
        text += f" {name}{at(cell)}{grid[cell[0]][cell[1]]}"
    return text


def lake_careless(state: str) -> str:
    """Distance to the goal, rows first: `G Down1 Right2`."""
    return "G" + _spell(offset(cells(state, "P")[0], cells(state, "G")[0]))


def sokoban_careful(state: str, plan: Sequence[str]) -> str:
    """Own cell, the box's, the target's, then each step with the cell it leads to: `P41 X31 O21 Up31X21`."""
    cell, box, target = (cells(state, symbols)[0] for symbols in ("PS", "X", "OS"))
    text = f"P{at(cell)} X{at(box)} O{at(target)}"
    for name in plan:
        cell = ahead(cell, name)
        text += f" {name}{at(cell)}"
        if cell == box:
            box = ahead(box, name)
            text += f"X{at(box)}"
    return text


def sokoban_careless(state: str) -> str:
    """Distance from the box to the target, rows first: `X Up1`."""
    return "X" + _spell(offset(cells(state, "X")[0], cells(state, "OS")[0]))


_THOUGHTS: Mapping[type[Env], tuple[Callable[[str, Sequence[str]], str], Callable[[str], str]]] = {
    FrozenLake: (lake_careful, lake_careless),
    Sokoban: (sokoban_careful, sokoban_careless),
}
