"""Metrics of runs whose policy is a script that plays a real environment with tools, well, badly, or ever worse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragen_verl.env import make
from ragen_verl.env.tools import said
from ragen_verl.rollout.metrics import summarize
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn

KINDS = ("healthy", "calls_stopped", "call_storm")


@dataclass(frozen=True)
class World:
    """An environment with tools, and the size of a step: groups, and episodes of a group."""

    env_id: str
    kwargs: dict[str, Any]
    groups: int = 8
    members: int = 4


TUNING = {
    "one link": World("ToolWorld-v0", {"depth": 1, "max_actions": 20}),
    "two links": World("ToolWorld-v0", {"max_actions": 20}, groups=16, members=2),
    "a missing person": World("ToolWorld-v0", {"missing": 0.5, "max_actions": 25}),
}
"""What the thresholds of the causes were looked at with."""
HELD_OUT = {
    "three boxes": World("Lockbox-v0", {"max_actions": 20}),
    "six boxes": World("Lockbox-v0", {"boxes": 6, "digits": 3, "tries": 5, "max_actions": 30}, groups=4, members=8),
    "four links": World("ToolWorld-v0", {"depth": 4, "distractors": 5, "max_actions": 40}, groups=6, members=4),
}
"""For measuring alone: another environment, and other sizes of the first."""


def run(world: World, kind: str, seed: int, steps: int = 80) -> Iterator[dict[str, float]]:
    """A line of metrics for each step of a run that learns; with a failure it does until that begins.

    The policy makes the oracle's next action with a probability that rises, any call with another, and says that it is
    done with a third. `calls_stopped` raises the last one, `call_storm` the number of times that a call is repeated.
    """
    random = np.random.default_rng((seed, KINDS.index(kind)))
    onset, length = random.uniform(30, 50), random.uniform(3, 20)
    skill, gain, idle = random.uniform(0.2, 0.6), random.uniform(0.0, 0.4), random.uniform(0.0, 0.05)
    worst = random.uniform(0.6, 1.0) if kind == "calls_stopped" else random.uniform(4, 12)
    env = make(world.env_id, **world.kwargs)
    for step in range(1, steps + 1):
        failed = 0.0 if kind == "healthy" else float(np.clip((step - onset) / length, 0, 1))
        able = skill + gain * min(step, onset if kind != "healthy" else steps) / steps
        stop = idle + (worst - idle) * failed if kind == "calls_stopped" else idle
        repeated = worst * failed if kind == "call_storm" else 0.0
        played = [
            _episode(env, int(random.integers(2**31)), random, able, stop, repeated)
            for _ in range(world.groups)
            for _ in range(world.members)
        ]
        yield {"step": step, **_metrics(played, world)}


def _episode(env: Any, seed: int, random: np.random.Generator, able: float, stop: float, repeated: float) -> Trajectory:
    state, _ = env.reset(seed=seed)
    found = Trajectory("Tools-v0", seed, 0, tools=env.tools)
    again = 0
    for _ in range(env.max_actions):
        if random.random() < stop:
            action = said("I am done.")
        elif again and found.turns:
            action, again = found.turns[-1].actions[0], again - 1
        else:
            action, again = env.oracle()[0], random.poisson(repeated)
            action = action if random.random() < able else env.random_action(random)
        step = env.step(action)
        flags = {"infos": [step.info], "seconds": [0.0], "valid": step.info["action_is_valid"], "num_valid": 1}
        found.turns.append(Turn(state, [], [0], actions=[action], executed=[action], reward=step.reward, **flags))
        state = step.observation
        found.stop_reason = StopReason.of_step(step.info["success"], step.terminated, step.truncated)
        if found.stop_reason:
            return found
    found.stop_reason = StopReason.ACTION_BUDGET
    return found


def _metrics(played: list[Trajectory], world: World) -> dict[str, float]:
    records = [
        {"env": "Tools", "seed": one.seed, "stop_reason": str(one.stop_reason), "excluded": False}
        | {"metrics": one.metrics()}
        for one in played
    ]
    returns = np.array([one.ret for one in played]).reshape(world.groups, world.members)
    return summarize(records, "train") | {
        "rollout/in_group_reward_mean": float(returns.mean()),
        "rollout/in_group_reward_std": float(returns.std(axis=1, ddof=1).mean()),
    }
