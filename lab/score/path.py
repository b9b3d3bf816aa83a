"""Evaluators of an episode's path through the states: progress, efficiency, loops."""

from __future__ import annotations

from itertools import pairwise

from ragen_lab.score.registry import evaluator
from ragen_lab.score.saved import Played

__all__ = [
    "backtracking",
    "goal_progress",
    "repeated_actions",
    "repeated_states",
    "step_efficiency",
    "unnecessary_turns",
]


@evaluator("goal_progress", better="higher", bounded=True)
def goal_progress(trajectory: Played) -> float | None:
    """Share of the way to the goal that was covered at the end, by the oracle's plan; 0 where there is no way left."""
    left = _left(trajectory)
    if not left or not left[0]:
        return None
    return 0.0 if left[-1] is None else max(0.0, 1.0 - left[-1] / left[0])


@evaluator("step_efficiency", better="higher", bounded=True)
def step_efficiency(trajectory: Played) -> float | None:
    """Actions of the oracle's plan over the actions taken, of solved episodes; 1 is a shortest way."""
    left = _left(trajectory)
    taken = sum(len(turn["executed"]) for turn in trajectory.turns)
    if not left or not left[0] or not trajectory.success or not taken:
        return None
    return min(1.0, left[0] / taken)


@evaluator("unnecessary_turns", better="lower", bounded=True)
def unnecessary_turns(trajectory: Played) -> float | None:
    """Share of turns after which the goal was no nearer than before, by the oracle's plan."""
    left = _left(trajectory)
    if len(left) < 2 or not left[0]:
        return None
    useless = sum(after is None or before is None or after >= before for before, after in pairwise(left))
    return useless / (len(left) - 1)


@evaluator("repeated_states", better="lower", bounded=True)
def repeated_states(trajectory: Played) -> float | None:
    """Share of turns that ended in a state which the episode had seen before, standing still included."""
    states = _states(trajectory)
    if len(states) < 2:
        return None
    return sum(state in states[:i] for i, state in enumerate(states) if i) / (len(states) - 1)


@evaluator("backtracking", better="lower", bounded=True)
def backtracking(trajectory: Played) -> float | None:
    """Share of turns that went back to a state which had been left before."""
    states = _states(trajectory)
    if len(states) < 2:
        return None
    back = sum(state != states[i - 1] and state in states[: i - 1] for i, state in enumerate(states) if i)
    return back / (len(states) - 1)


@evaluator("repeated_actions", better="lower", bounded=True)
def repeated_actions(trajectory: Played) -> float | None:
    """Share of turns with the same actions in the same state as an earlier turn of the episode."""
    tried = [(turn["state"], tuple(turn["actions"])) for turn in trajectory.turns]
    if not tried:
        return None
    return (len(tried) - len(set(tried))) / len(tried)


def _left(trajectory: Played) -> tuple[int | None, ...]:
    return trajectory.replay.left if trajectory.replay else ()


def _states(trajectory: Played) -> list[str]:
    """The state before each turn, and the one after the last."""
    turns = trajectory.turns
    return [turn["state"] for turn in turns] + [turn["observation"] for turn in turns[-1:]]
