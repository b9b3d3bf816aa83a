"""Texts for gymnasium's own environments, by the name of their class: actions, task, observation and success.

The facts are from the environments' documentation (gymnasium.farama.org).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium

__all__ = ["Table", "of"]


@dataclass(frozen=True)
class Table:
    """The texts for an environment, and its criterion of success.

    Attributes:
        actions: names of the Discrete actions in their order.
        instruction: the task.
        describe: (environment, observation) -> text; None for the general form.
        solved_by_ending: whether an episode that terminates is a success, with any reward.
        success_return: sum of rewards that counts as solved; None: a positive reward at termination is a success.
        most_a_step: the largest reward of a step; with a smaller budget a smaller sum counts as solved.
    """

    actions: tuple[str, ...] = ()
    instruction: str = ""
    describe: Callable[[Any, Any], str] | None = None
    solved_by_ending: bool = False
    success_return: float | None = None
    most_a_step: float = float("inf")


def of(env: gymnasium.Env) -> Table:
    """Return the table of gymnasium's environment that is inside the wrappers of `env`; an empty one for any other."""
    kind = type(env.unwrapped)
    table = _TABLES.get(kind.__name__) if kind.__module__.startswith("gymnasium.envs.") else None
    if table is None:
        return Table()
    if env.observation_space != env.unwrapped.observation_space:  # a wrapper shows something else
        table = replace(table, describe=None)
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.RewardWrapper):  # sums of other rewards
            table = replace(table, success_return=None)
        env = env.env
    return table


_PLACES = ("red (row 0, column 0)", "green (row 0, column 4)", "yellow (row 4, column 0)", "blue (row 4, column 3)")


def _taxi(env: Any, state: Any) -> str:
    row, column, passenger, goal = env.decode(int(state))
    lines = ["".join(cell.decode() for cell in line) for line in env.desc]
    at = 2 * column + 1
    lines[row + 1] = f"{lines[row + 1][:at]}T{lines[row + 1][at + 1 :]}"
    where = f"waits at {_PLACES[passenger]}" if passenger < len(_PLACES) else "sits in the taxi"
    return "\n".join([*lines, f"Taxi: row {row}, column {column}. The passenger {where} and goes to {_PLACES[goal]}."])


def _cliff(env: Any, state: Any) -> str:
    rows, columns = env.shape
    row, column = divmod(int(state), columns)
    cells = [["_"] * columns for _ in range(rows)]
    cells[-1][1:-1] = ["C"] * (columns - 2)
    cells[-1][0], cells[-1][-1] = "S", "G"
    cells[row][column] = "P"
    return "\n".join(map("".join, cells)) + f"\nPlayer: row {row}, column {column}."


def _lake(env: Any, state: Any) -> str:
    row, column = divmod(int(state), env.ncol)
    cells = [[cell.decode() for cell in line] for line in env.desc]
    cells[row][column] = "P"
    return "\n".join(map("".join, cells)) + f"\nPlayer: row {row}, column {column}."


def _blackjack(env: Any, state: Any) -> str:
    total, dealer, ace = map(int, state)
    return (
        f"Your cards count {total}{', with an ace that counts 11' if ace else ''}. "
        f"The dealer shows {'an ace' if dealer == 1 else f'a card worth {dealer}'}."
    )


def _named(names: tuple[str, ...], env: Any, values: Any) -> str:
    return ", ".join(f"{name} {float(value) + 0.0:.3f}" for name, value in zip(names, values, strict=True)) + "."


_TABLES = {
    "TaxiEnv": Table(
        ("south", "north", "east", "west", "pickup", "dropoff"),
        "You drive the taxi T on the map; | are walls, : can be crossed. R, G, Y and B are the four places. Drive to "
        "the passenger, take them in with pickup, drive to where they want to go, and let them out with dropoff. "
        "Every action costs 1, a pickup or dropoff at a wrong place 10; the right dropoff earns 20 and ends the trip.",
        _taxi,
    ),
    "CliffWalkingEnv": Table(
        ("up", "right", "down", "left"),
        "Walk P from the start S to the goal G. Every step costs 1. Stepping on the cliff C costs 100 and puts you "
        "back on the start.",
        _cliff,
        solved_by_ending=True,
    ),
    "FrozenLakeEnv": Table(
        ("left", "down", "right", "up"),
        "Walk P over the frozen lake from the start S to the goal G: F is ice, H a hole. The ice may be slippery, so "
        "that a move goes to the side. A hole ends the game; the goal earns 1.",
        _lake,
    ),
    "BlackjackEnv": Table(
        ("stick", "hit"),
        "You play blackjack against a dealer. hit draws a card; above 21 you lose. stick ends your turn: the dealer "
        "draws up to 17 or more, and the higher count wins. Winning earns 1, a draw 0, losing -1.",
        _blackjack,
    ),
    "CartPoleEnv": Table(
        ("left", "right"),
        "Keep the pole on the cart upright by pushing the cart left or right. Every step earns 1. The game ends when "
        "the pole leans more than 12 degrees (0.209 rad) or the cart leaves -2.4 to 2.4.",
        partial(_named, ("cart position", "cart velocity", "pole angle (rad)", "pole angular velocity")),
        success_return=475.0,
        most_a_step=1.0,
    ),
    "MountainCarEnv": Table(
        ("left", "coast", "right"),
        "Bring the car in the valley to position 0.5 on the right hill. Its engine is too weak to drive straight up: "
        "swing back and forth. Every step costs 1.",
        partial(_named, ("position", "velocity")),
        solved_by_ending=True,
    ),
    "AcrobotEnv": Table(
        ("torque -1", "torque 0", "torque +1"),
        "Swing the lower end of a hanging double pendulum above the line one link over the fixed joint, by torque on "
        "the joint between the links. Every step costs 1.",
        partial(_named, ("cos angle 1", "sin angle 1", "cos angle 2", "sin angle 2", "velocity 1", "velocity 2")),
        solved_by_ending=True,
    ),
}
