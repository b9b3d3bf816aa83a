"""Recorded episodes: all results of an environment, as plain data that can be compared across processes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from ragen_lab.checker.calls import Calls

from ragen_verl.env import core
from ragen_verl.env.core import Env

__all__ = ["Event", "Oracle", "chooser", "difference", "episode", "fingerprint", "moves", "plan", "random_action"]

_PLAYER = 0x706C6179  # makes the players' generators differ from every generator that an environment seeds
Event = list[Any]
Oracle = Literal["followed", "ignored", "unasked"]


def chooser(*key: int) -> np.random.Generator:
    """The generator of a player's choices; it is independent of an environment's generators with the same seeds."""
    return np.random.default_rng([_PLAYER, *key])


def random_action(env: Env, rng: np.random.Generator, state: str, calls: Calls) -> str:
    """A random action, drawn with `rng`, as one of the calls that must not raise or hang."""
    return calls.call("random_action()", lambda: core.random_action(env, rng, state))


def plan(env: Env, calls: Calls) -> list[str]:
    """The environment's own plan from its current state; [] where it knows none."""
    return calls.call("oracle()", lambda: list(getattr(env, "oracle", list)() or []))


def episode(
    env: Env, seed: int, rollout_index: int, steps: int, calls: Calls, oracle: Oracle = "followed"
) -> Iterator[Event]:
    """Play an episode and yield its visible events: the start, then every action with its outcome.

    Args:
        env: the environment; it may have played before.
        seed, rollout_index: those of the episode; they also seed the player's choices.
        steps: the highest number of actions.
        calls: makes the calls.
        oracle: whether the oracle is followed in about half of the actions, so that the episode makes progress; or
            asked and ignored; or not asked. The other actions are random.
    """
    state = calls.reset(env, seed, rollout_index)
    yield ["start", state, env.instruction, list(env.actions or ()), dict(env.symbols), env.max_actions]
    yield from moves(env, chooser(seed, rollout_index), state, steps, calls, oracle)


def moves(
    env: Env, rng: np.random.Generator, state: str, steps: int, calls: Calls, oracle: Oracle = "followed"
) -> Iterator[Event]:
    """Continue from the environment's current state, as `episode` does."""
    for _ in range(steps):
        action, planned = random_action(env, rng, state, calls), rng.random() < 0.5
        if planned and oracle != "unasked" and (path := plan(env, calls)) and oracle == "followed":
            action = path[0]
        step = calls.step(env, action)
        state = step.observation
        numbers = {key: float(value) for key, value in sorted(step.info.items()) if isinstance(value, (int, float))}
        yield [action, state, float(step.reward), step.terminated, step.truncated, numbers]
        if step.terminated or step.truncated:
            return


def difference(one: list[Event], other: list[Event]) -> str | None:
    """A description of the first difference between two recordings; None if they are the same."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return "the start differs" if place == 0 else f"action {place} ({left[0]!r}) has another outcome"
    if len(one) != len(other):
        return f"one ends after {len(one) - 1} actions, the other after {len(other) - 1}"
    return None


def fingerprint(events: list[Event]) -> str:
    """A short text that differs where recordings differ."""
    return hashlib.sha256(json.dumps(events).encode("ascii")).hexdigest()[:16]
