"""The policies: a chat API, a model behind vLLM with exact token ids, the environment's own plan, random, a person.

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
from ragen_verl.errors import MissingExtra, RecipeError
from ragen_verl.rollout.episode import Generation
from ragen_verl.rollout.protocol import Protocol

__all__ = [
    "Endpoint",
    "Person",
    "Player",
    "Policy",
    "Sampling",
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
    """

    seconds: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Player:
    """The engine of one episode.

    Attributes:
        usage: the cost so far.
        env: the environment after it is built, for players that use it.
    """

    def __init__(self) -> None:
        self.usage = Usage()
        self.env: Env | None = None

    async def __call__(self, conversation: list[Any], max_tokens: int) -> Generation:
        """Answer a conversation and measure the time."""
        started = time.perf_counter()
        try:
            return await self.respond(conversation, max_tokens)
        finally:
            self.usage.seconds.append(time.perf_counter() - started)

    async def respond(self, conversation: list[Any], max_tokens: int) -> Generation:
        """One response to a conversation."""
        raise NotImplementedError


class Policy:
    """Base class of policies.

    Attributes:
        name: its name in tables and files.
        concurrency: how many episodes it can play at the same time; None leaves it to the evaluation.
        exact: whether its conversations are token ids, so that the recipe's limits on tokens hold.
        context: the highest number of tokens of a conversation for its model; None where it is unknown.
    """

    name: str
    concurrency: int | None = None
    exact: bool = False
    context: int | None = None

    def chat(self, protocol: Protocol) -> Any:
        """The chat, which makes the player's input from messages."""
        return MessageChat(protocol)

    def player(self, episode: Episode, protocol: Protocol) -> Player:
        """The engine of one episode."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """The settings that its results depend on."""
        return {"policy": self.name}


def _answer(protocol: Protocol, actions: list[str]) -> Generation:
    """A response that consists of actions alone."""
    return Generation([Message("assistant", protocol.answer(actions))])


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
        return _answer(self._protocol, await asyncio.to_thread(self._choose, self.env, most))


def oracle_actions(env: Env, count: int) -> list[str]:
    """The first actions of the environment's own plan, at most `count`; [] where it knows none."""
    return list(env.oracle())[:count]


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
        return _answer(self._protocol, [await asyncio.to_thread(self._ask, conversation[-1].content)])


@dataclass(frozen=True)
class Sampling:
    """The settings of requests to an endpoint.

    Attributes:
        temperature, top_p: as in the OpenAI API.
        timeout: seconds for one request.
        retries: the number of retries of a request that timed out, was refused for its rate (429) or failed on the
            server (5xx). The pauses between them grow, or have the length that the server gives.
        concurrency: the number of requests at the same time.
        per_minute: the highest number of requests started in a minute; None sets no limit.
        seeded: whether to send a seed that depends on the initial state, the rollout index and the turn.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    timeout: float = 120.0
    retries: int = 6
    concurrency: int = 16
    per_minute: float | None = None
    seeded: bool = True


class Endpoint(Policy):
    """A model behind an OpenAI-compatible server.

    Args:
        model: its name there.
        url: the base address, such as http://127.0.0.1:8000/v1; None takes OPENAI_BASE_URL or OpenAI's own.
        sampling: the settings of requests.
        tokenizer: a Hugging Face tokenizer makes the policy exact: prompts are sent as token ids to the completions
            route and the sampled ids come back, as in training. It needs a vLLM server. None sends messages.
        name: its name in tables; None takes the model's.
        context: the highest number of tokens of a conversation.

    Raises:
        MissingExtra: the openai package is not installed.
        RecipeError: there is no key for OpenAI's own address.
    """

    def __init__(
        self,
        model: str,
        url: str | None = None,
        sampling: Sampling | None = None,
        tokenizer: Any = None,
        name: str | None = None,
        context: int | None = None,
    ) -> None:
        try:
            import openai
        except ImportError:
            raise MissingExtra('A policy behind an API needs openai: run pip install "openai>=1".') from None
        self.model, self.url, self.sampling = model, url, sampling or Sampling()
        self.name, self.exact, self.concurrency = name or model, tokenizer is not None, self.sampling.concurrency
        self._tokenizer, self.context = tokenizer, context
        self._pace = _Pace(self.sampling.per_minute)
        self._arguments: dict[str, Any] = {
            "base_url": url,
            "api_key": None if url is None else "none",
            "timeout": self.sampling.timeout,
            "max_retries": self.sampling.retries,
        }
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._client = openai.AsyncOpenAI(**self._arguments)
        except openai.OpenAIError as error:
            raise RecipeError(
                f"{model} is asked for at OpenAI's own address, and {error}: set OPENAI_API_KEY, or give a URL."
            ) from error

    @property
    def client(self) -> Any:
        """The client of the running event loop, since open connections belong to the loop that opened them."""
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._client, self._loop = type(self._client)(**self._arguments), loop
        return self._client

    def chat(self, protocol: Protocol) -> Any:
        """Token ids where the policy is exact, messages otherwise."""
        return protocol.chat(self._tokenizer) if self.exact else MessageChat(protocol)

    def player(self, episode: Episode, protocol: Protocol) -> Player:
        """A player that asks the server once in each turn."""
        return (_IdsPlayer if self.exact else _ChatPlayer)(self, episode)

    def settings(self) -> dict[str, Any]:
        """Model, route and sampling."""
        asked = self.sampling
        return {
            "policy": self.name,
            "model": self.model,
            "route": "completions" if self.exact else "chat",
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "seeded": asked.seeded,
        }


class _Pace:
    """A limit on the number of requests started in a minute; they are evenly spaced."""

    def __init__(self, per_minute: float | None) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0

    async def turn(self) -> None:
        now = time.monotonic()
        self._next = max(self._next, now) + self._gap
        if (pause := self._next - self._gap - now) > 0:
            await asyncio.sleep(pause)


class _ApiPlayer(Player):
    def __init__(self, policy: Endpoint, episode: Episode) -> None:
        super().__init__()
        self._policy = policy
        # the same stream of seeds as in the agent loop of a training
        self._seeds = np.random.default_rng((episode.seed, episode.rollout_index))

    def _arguments(self, max_tokens: int) -> dict[str, Any]:
        asked = self._policy.sampling
        given = {"model": self._policy.model, "max_tokens": max_tokens, "temperature": asked.temperature}
        if asked.top_p != 1.0:
            given["top_p"] = asked.top_p
        if asked.seeded:
            given["seed"] = int(self._seeds.integers(2**31))
        return given

    def _count(self, usage: Any) -> None:
        if usage is not None:
            self.usage.prompt_tokens += usage.prompt_tokens or 0
            self.usage.completion_tokens += usage.completion_tokens or 0


class _ChatPlayer(_ApiPlayer):
    async def respond(self, conversation: list[Message], max_tokens: int) -> Generation:
        await self._policy._pace.turn()
        messages = [{"role": one.role, "content": one.content} for one in conversation]
        reply = await self._policy.client.chat.completions.create(messages=messages, **self._arguments(max_tokens))
        choices = getattr(reply, "choices", None)
        if not choices or choices[0].message is None:
            raise ConnectionError(f"the server's reply holds no choice: {str(reply)[:200]!r}")
        self._count(reply.usage)
        return Generation([Message("assistant", choices[0].message.content or "")])


class _IdsPlayer(_ApiPlayer):
    async def respond(self, conversation: list[int], max_tokens: int) -> Generation:
        await self._policy._pace.turn()
        reply = await self._policy.client.completions.create(
            prompt=conversation, logprobs=0, extra_body={"return_token_ids": True}, **self._arguments(max_tokens)
        )
        choices = getattr(reply, "choices", None)
        ids = getattr(choices[0], "token_ids", None) if choices else None
        if not ids:
            raise ConnectionError("the server's reply holds no token ids: token by token takes a vLLM server")
        self._count(reply.usage)
        log_probs = choices[0].logprobs.token_logprobs if choices[0].logprobs else None
        return Generation(list(ids), log_probs)
