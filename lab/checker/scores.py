"""Whole episodes of a random player and of the oracle, through the rollout's own code: returns and stop reasons.

The rollout is `ragen_verl.rollout.episode.play` as in training. A scripted engine replaces the model and gives one
action in each answer; characters replace tokens.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ragen_lab.checker.calls import Calls
from ragen_lab.checker.profile import Profile
from ragen_lab.checker.record import chooser, plan, random_action
from ragen_lab.checker.subject import Subject

from ragen_verl.env.core import Env
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.rollout.chat import Chat
from ragen_verl.rollout.context import SingleTurn
from ragen_verl.rollout.episode import Generation, Limits, play
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.trajectory import StopReason, Trajectory

__all__ = ["ENDS", "play_all"]

ENDS = {str(reason) for reason in StopReason} - {str(StopReason.ENV_ERROR), str(StopReason.ENGINE_ERROR)}
"""The stop reasons that do not mean a failure of environment or engine."""

_LONG = 50_000_000  # characters, so that no episode is cut because of its length
_Player = Callable[[Env, np.random.Generator, str], str]


class _Characters(Chat):
    """Replaces `ChatTokens`: the ids are code points, so that any text passes unchanged."""

    def initial(self, system: str, user: str) -> list[int]:
        """The opening of a conversation."""
        return list(map(ord, user))

    def turn(self, closed: bool, user: str) -> list[int]:
        """The ids between two responses."""
        return list(map(ord, user))

    def closed(self, response_ids: Sequence[int]) -> bool:
        """Responses have no end-of-turn token."""
        return False

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids."""
        return "".join(map(chr, ids))


def _players(calls: Calls) -> dict[str, _Player]:
    """The random player, and the player that follows the environment's plan, which is computed before every action."""

    def follow(env: Env, rng: np.random.Generator, state: str) -> str:
        return next(iter(plan(env, calls)), None) or random_action(env, rng, state, calls)

    return {"random": lambda env, rng, state: random_action(env, rng, state, calls), "oracle": follow}


def play_all(subject: Subject, profile: Profile, calls: Calls) -> dict[str, dict[str, Any] | None]:
    """The scores of both players; None for an oracle that has no plan for any of the seeds."""
    found: dict[str, dict[str, Any] | None] = {}
    for name, player in _players(calls).items():
        if name == "oracle" and not _plans(subject, profile, calls):
            found[name] = None
            continue
        seeds = range(profile.episodes)
        found[name] = _score(asyncio.run(_episodes(subject, profile, player, seeds, calls)))
    return found


def _plans(subject: Subject, profile: Profile, calls: Calls) -> bool:
    env = calls.build(subject.build)
    for seed in range(min(profile.episodes, 5)):
        calls.reset(env, seed)
        if plan(env, calls):
            return True
    return False


async def _episodes(
    subject: Subject, profile: Profile, player: _Player, seeds: Sequence[int], calls: Calls
) -> list[Trajectory]:
    with EnvWorkers(1) as workers:
        return [await _episode(subject, profile, player, seed, calls, workers) for seed in seeds]


async def _episode(
    subject: Subject, profile: Profile, player: _Player, seed: int, calls: Calls, workers: EnvWorkers
) -> Trajectory:
    env = calls.build(subject.build)
    rng = chooser(seed)

    async def answer(ids: list[int], max_tokens: int) -> Generation:
        action = player(env, rng, env.render() if env.actions is None else "")
        return Generation(list(map(ord, f"{action}</answer>")))

    # the budget is known only after the reset
    calls.reset(env, seed)
    budget = max(1, min(env.max_actions, profile.budget))
    protocol = Ragen(
        think=False,
        max_turns=budget,
        max_actions_per_turn=1,
        max_actions=budget,
        action_sep="",
        format_penalty=0.0,
        system_prompt="",
    )
    return await play(
        env,
        seed=seed,
        rollout_index=0,
        protocol=protocol,
        chat=_Characters(),  # type: ignore[arg-type]  # code points are its ids
        generate=answer,
        limits=Limits(response_length=_LONG, context_length=2 * _LONG, step_timeout=profile.limit),
        workers=workers,
        env_id=subject.label,
        context=SingleTurn(),
    )


def _score(played: Sequence[Trajectory]) -> dict[str, Any]:
    """Means over episodes: `success`, `return` with its standard `error` (None for one episode), number of `actions`.

    `stops` counts the stop reasons, `error_text` is the text of the first failure. `valid` is the share of valid
    actions. `paid_at_the_end` tells whether an episode that the environment ended without success had a last reward
    above 0 and above all others, as if the task had been solved.
    """
    infos = [info for episode in played for turn in episode.turns for info in turn.infos]
    ended = (episode for episode in played if episode.stop_reason is StopReason.TERMINATED)
    lost = [[turn.reward for turn in episode.turns] for episode in ended if episode.turns]
    returns = [episode.ret for episode in played]
    error = statistics.stdev(returns) / math.sqrt(len(returns)) if len(returns) > 1 else None
    return {
        "episodes": len(played),
        "success": statistics.fmean(episode.success for episode in played),
        "return": statistics.fmean(returns),
        "error": error,
        "stops": dict(Counter(str(episode.stop_reason) for episode in played)),
        "actions": len(infos),
        "valid": sum(bool(info.get("action_is_valid")) for info in infos) / max(1, len(infos)),
        "paid_at_the_end": any(rewards[-1] > max(0.0, *rewards[:-1], 0.0) for rewards in lost),
        "error_text": next((episode.error for episode in played if episode.error), ""),
    }
