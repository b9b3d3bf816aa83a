"""Replay a saved episode in a fresh environment, to find the distance to the goal, which the record does not contain.

The seed, the rollout index and the actions determine an environment's transitions, so the same actions lead through the
same states. If an observation differs from the saved one, there is no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragen_lab.hosted import make_hosted

from ragen_verl.env import Env
from ragen_verl.env.core import flag
from ragen_verl.rollout.trajectory import StopReason

__all__ = ["Replay", "replay"]


_gone: set[str] = set()  # ids whose server did not answer; the other episodes do not wait for it again


@dataclass(frozen=True)
class Replay:
    """The results of the replay of an episode.

    Attributes:
        success: whether the environment reported that the task was solved.
        actions: its action names; None where actions are free text.
        left: length of the oracle's plan before the first turn and after each one: 0 where the task is solved, None
            where it cannot be solved any more. Empty where the oracle has no plan.
        best_return: return of the oracle's plan from the initial state; None where there is no plan, or where the plan
            does not solve the task.
    """

    success: bool
    actions: tuple[str, ...] | None
    left: tuple[int | None, ...]
    best_return: float | None


def replay(record: Mapping[str, Any], kwargs: Mapping[str, Any], shared_rng: bool = False) -> Replay | None:
    """Play a record's executed actions again.

    Args:
        record: `Trajectory.record()`.
        kwargs: the environment's arguments.
        shared_rng: as in `ragen_verl.rollout.episode.play`.

    Returns:
        None where the environment is not installed, its server is gone, it fails, or it shows other states. An
        environment with a process of its own is played in one, an environment behind HTTP on its server.
    """
    if record["env_id"] in _gone or not record["turns"]:
        return None
    start = {"seed": record["seed"], "options": {"rollout_index": 0 if shared_rng else record["rollout_index"]}}
    try:
        env = make_hosted(record["env_id"], **kwargs)
        try:
            return _replay(env, record, start, kwargs)
        finally:
            env.close()
    except ConnectionError:
        _gone.add(record["env_id"])
        return None
    except Exception:  # it may be somebody else's environment; evaluators that need the replay then have no result
        return None


def _replay(env: Env, record: Mapping[str, Any], start: dict[str, Any], kwargs: Mapping[str, Any]) -> Replay | None:
    state, _ = env.reset(**start)
    if state != record["turns"][0]["state"]:
        return None
    actions = None if env.actions is None else tuple(env.actions)
    plan = list(env.oracle())
    best = _return_of(plan, record["env_id"], kwargs, start) if plan else None
    # an oracle that knows only a good next move, as in 2048, has no plan whose length is a distance
    planned = bool(plan) and not (len(plan) == 1 and best is None)
    left: list[int | None] = [len(plan)]
    success = over = False
    for turn in record["turns"]:
        for action in turn["executed"]:
            state, _, terminated, truncated, info = env.step(action)
            success = success or flag("info['success']", info.get("success", False))
            over = over or terminated or truncated
        if turn["executed"] and state != turn["observation"]:
            return None
        if planned:
            left.append(0 if success else None if over else len(env.oracle()) or None)
    return Replay(success, actions, tuple(left) if planned else (), best)


def _return_of(plan: list[str], env_id: str, kwargs: Mapping[str, Any], start: dict[str, Any]) -> float | None:
    env = make_hosted(env_id, **kwargs)
    try:
        env.reset(**start)
        total = 0.0
        for action in plan:
            _, reward, terminated, truncated, info = env.step(action)
            total += reward
            if StopReason.of_step(info.get("success", False), terminated, truncated) is StopReason.SOLVED:
                return total
        return None
    finally:
        env.close()
