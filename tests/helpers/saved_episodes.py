"""Trajectories of real environments with the actions and thoughts that a test wants."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ragen_lab.score.saved import Played

from ragen_verl.config.envs import EnvGroups
from ragen_verl.env import make
from ragen_verl.rollout.record import encode
from ragen_verl.rollout.trajectory import StopReason, Trajectory, Turn


def played(
    turns: Sequence[Sequence[str]],
    env_id: str = "FrozenLake-v0",
    seed: int = 123,
    thoughts: Sequence[str] = (),
    rollout_index: int = 0,
    step: int | None = None,
    **kwargs: Any,
) -> Played:
    """The episode with these actions in each turn, up to its end."""
    if env_id == "FrozenLake-v0":
        kwargs = {"success_rate": 1.0, **kwargs}
    env = make(env_id, **kwargs)
    state, _ = env.reset(seed=seed, options={"rollout_index": rollout_index})
    episode = Trajectory(env_id, seed, rollout_index, env_name=EnvGroups(env_id).tag, task_prompt=env.instruction)
    stop = None
    for number, actions in enumerate(turns):
        turn = Turn(state, [1], [1], think=thoughts[number] if thoughts else "", actions=list(actions))
        turn.observation = state
        for action in actions:
            state, reward, terminated, truncated, info = env.step(action)
            turn.executed.append(action)
            turn.infos.append(info)
            turn.reward += reward
            turn.observation = state
            stop = StopReason.of_step(bool(info.get("success")), terminated, truncated)
            if stop:
                break
        turn.valid = bool(actions)
        episode.turns.append(turn)
        if stop:
            break
    episode.stop_reason = stop or StopReason.TURN_BUDGET
    return Played(json.loads(json.dumps(episode.record())), "val", step, kwargs)


def plan(env_id: str = "FrozenLake-v0", seed: int = 123, **kwargs: Any) -> list[str]:
    """The oracle's plan from the initial state."""
    if env_id == "FrozenLake-v0":
        kwargs = {"success_rate": 1.0, **kwargs}
    env = make(env_id, **kwargs)
    env.reset(seed=seed)
    return env.oracle()


def episode(success: bool, seed: int, rollout_index: int = 0, ret: float | None = None, env: str = "Lake") -> Played:
    """A trajectory without turns, for what looks at its end alone."""
    stop = StopReason.SOLVED if success else StopReason.TURN_BUDGET
    record = Trajectory(f"{env}-v0", seed, rollout_index, stop_reason=stop, env_name=env).record()
    return Played({**record, "return": float(success) if ret is None else ret}, "val")


def write(file: Path, trajectories: Iterable[Played]) -> Path:
    """The records as an evaluation leaves them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({**encode(one.record), "split": one.split}) + "\n" for one in trajectories))
    return file
