"""The policies that need no server: the environment's own plan, random, a person. `endpoint` has those behind one.

A policy makes one player for each episode. A player is the engine of `ragen_verl.rollout.episode.play`: it gets the
whole conversation so far and returns one response.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ragen_lab.evaluate.messages import Message, MessageChat
from ragen_lab.evaluate.plan import Episode

from ragen_verl.env.core import Env, random_action
from ragen_verl.errors import RecipeError
from ragen_verl.rollout.episode import Generation
from ragen_verl.rollout.protocol import Protocol

__all__ = [
    "Person",
    "Player",
    "Policy",
    "Scripted",
    "Usage",
    "oracle_actions",
    "random_actions",
]


@dataclass
class Usage:
    """The cost of one episode.

    Attributes:
        seconds: the time of each response.
        prompt_tokens, completion_tokens: as the server counts them; 0 without a server.
        finishes: why each response ended, as the server says (`stop`, `length`, ...); empty without a server.
        left_out: arguments of the requests that the server refused, so that its own defaults held.
    """

    seconds: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finishes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """The cost as data for JSON."""
        return {**vars(self), "seconds": [round(seconds, 4) for seconds in self.seconds]}


class Player:
    """The engine of one episode.

    Attributes:
        usage: the cost so far.
        env: the environment after it is built, for players that use it.
        unusable: what keeps every episode of the policy from being played; None where nothing is known to.
    """

    def __init__(self) -> None:
        self.usage = Usage()
        self.env: Env | None = None
        self.unusable: RecipeError | None = None

    async def __call__(self, conversation: list[Any], max_tokens: int) -> Generation:
        """Answer a conversation and measure the time."""
        started = time.perf_counter()
        try:
            return await self.respond(conversation, max_tokens)
        except RecipeError as error:
            self.unusable = error
            raise
        finally:
            self.usage.seconds.append(time.perf_counter() - started)

    async def respond(self, conversation: list[Any], max_tokens: int) -> Generation:
        """One response to a conversation."""
        raise NotImplementedError

    @staticmethod
    def say(text: str) -> Generation:
        """A text as the response of a player whose conversations are messages."""
        return Generation([Message("assistant", text)])


class Policy:
    """Base class of policies.

    Attributes:
        name: its name in tables and files.
        concurrency: how many episodes it can play at the same time; None leaves it to the evaluation.
        exact: whether its conversations are token ids, so that the recipe's limits on tokens hold.
        context: the highest number of tokens of a conversation for its model; None where it is unknown.
        response_length: the highest number of tokens of one response; None takes the recipe's.
    """

    name: str
    concurrency: int | None = None
    exact: bool = False
    context: int | None = None
    response_length: int | None = None

    def chat(self, protocol: Protocol) -> Any:
        """The chat, which makes the player's input from messages."""
        return MessageChat(protocol)

    def player(self, episode: Episode, protocol: Protocol) -> Player:
        """The engine of one episode."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """The settings that its results depend on."""
        return {"policy": self.name}

    async def close(self) -> None:
        """Free what belongs to the event loop of an evaluation that ends."""


class Scripted(Policy):
    """A policy that follows the environment's own plan, or plays at random.

    Args:
        name: `oracle`, or `random`: each action drawn from the known ones, with the episode's seed.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def player(self, episode: Episode, protocol: Protocol) -> Player:
        """Plays as many actions in a turn as the protocol allows."""
        rng = np.random.default_rng([episode.seed, episode.rollout_index])
        if self.name == "oracle":
            return _ScriptedPlayer(protocol, oracle_actions)
        return _ScriptedPlayer(protocol, lambda env, count: random_actions(env, count, rng))


class _ScriptedPlayer(Player):
    def __init__(self, protocol: Protocol, choose: Callable[[Env, int], list[str]]) -> None:
        super().__init__()
        self._protocol, self._choose = protocol, choose

    async def respond(self, conversation: list[Message], max_tokens: int) -> Generation:
        most = self._protocol.max_actions_per_turn if self._protocol.action_sep else 1
        actions = await asyncio.to_thread(self._choose, self.env, most)
        return self.say(self._protocol.answer(actions))


def oracle_actions(env: Env, count: int) -> list[str]:
    """The first actions of the environment's own plan, at most `count`; [] where it knows none.

    With tools it is one: a reply holds calls or words, and a plan may have both.
    """
    return list(env.oracle())[: 1 if env.tools else count]


def random_actions(env: Env, count: int, rng: np.random.Generator) -> list[str]:
    """`count` random actions, each as `ragen_verl.env.core.random_action` draws it."""
    return [random_action(env, rng) for _ in range(count)]


class Person(Policy):
    """A person at the keyboard.

    Args:
        ask: shows a text and returns the typed one.
    """

    name = "human"
    concurrency = 1

    def __init__(self, ask: Callable[[str], str]) -> None:
        self._ask = ask

    def player(self, episode: Episode, protocol: Protocol) -> Player:
        """Shows the last message and takes the typed actions."""
        return _PersonPlayer(protocol, self._ask)


class _PersonPlayer(Player):
    def __init__(self, protocol: Protocol, ask: Callable[[str], str]) -> None:
        super().__init__()
        self._protocol, self._ask = protocol, ask

    async def respond(self, conversation: list[Message], max_tokens: int) -> Generation:
        action = await asyncio.to_thread(self._ask, conversation[-1].content)
        return self.say(self._protocol.answer([action]))
