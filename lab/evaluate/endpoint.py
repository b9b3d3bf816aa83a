"""`Endpoint`: a policy behind an OpenAI-compatible server, asked with messages or, of vLLM, with exact token ids."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from ragen_lab.evaluate.api import Api, Reply
from ragen_lab.evaluate.messages import Message, MessageChat, written
from ragen_lab.evaluate.plan import Episode
from ragen_lab.evaluate.policies import Player, Policy

from ragen_verl.rollout.episode import Generation
from ragen_verl.rollout.protocol import Protocol

__all__ = ["Endpoint", "Sampling"]


@dataclass(frozen=True)
class Sampling:
    """The settings of requests to an endpoint.

    Attributes:
        temperature, top_p: as in the OpenAI API.
        response_length: the highest number of tokens of one response to messages; None takes the recipe's. Where token
            ids are asked with, the recipe's holds.
        timeout: seconds for one request.
        retries: the number of retries of a request, as in `Api`.
        concurrency: the number of requests at the same time.
        per_minute: the highest number of requests started in a minute; None sets no limit.
        seeded: whether to send a seed that depends on the initial state, the rollout index and the turn.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    response_length: int | None = None
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
        self.model, self.sampling = model, sampling or Sampling()
        self.name, self.exact, self.concurrency = name or model, tokenizer is not None, self.sampling.concurrency
        self.response_length = None if self.exact else self.sampling.response_length
        self._tokenizer, self.context = tokenizer, context
        self.pace = _Pace(self.sampling.per_minute)
        self.api = Api(model, url, timeout=self.sampling.timeout, retries=self.sampling.retries)

    def chat(self, protocol: Protocol) -> Any:
        """Token ids where the policy is exact, messages otherwise."""
        return protocol.chat(self._tokenizer) if self.exact else MessageChat(protocol)

    def player(self, episode: Episode, protocol: Protocol) -> Player:
        """A player that asks the server once in each turn."""
        return _IdsPlayer(self, episode) if self.exact else _ChatPlayer(self, episode, protocol)

    def settings(self) -> dict[str, Any]:
        """Model, route and sampling."""
        asked = self.sampling
        found: dict[str, Any] = {
            "policy": self.name,
            "model": self.model,
            "route": "completions" if self.exact else "chat",
        }
        if self.response_length is not None:
            found["response_length"] = self.response_length
        return {**found, "temperature": asked.temperature, "top_p": asked.top_p, "seeded": asked.seeded}

    async def close(self) -> None:
        """Close the connections."""
        await self.api.close()


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
        # the same stream of seeds as in the agent loop of a run
        self._seeds = np.random.default_rng((episode.seed, episode.rollout_index))

    async def _asked(self, max_tokens: int) -> dict[str, Any]:
        """The arguments of the next request, when its turn has come."""
        await self._policy.pace.turn()
        asked = self._policy.sampling
        given: dict[str, Any] = {"max_tokens": max_tokens, "temperature": asked.temperature}
        if asked.top_p != 1.0:
            given["top_p"] = asked.top_p
        if asked.seeded:
            given["seed"] = int(self._seeds.integers(2**31))
        return given

    def _count(self, reply: Reply) -> None:
        self.usage.prompt_tokens += reply.prompt_tokens
        self.usage.completion_tokens += reply.completion_tokens
        self.usage.finishes.append(reply.finish)
        self.usage.left_out = list(self._policy.api.left_out)


class _ChatPlayer(_ApiPlayer):
    def __init__(self, policy: Endpoint, episode: Episode, protocol: Protocol) -> None:
        super().__init__(policy, episode)
        self._protocol = protocol

    async def respond(self, conversation: list[Message], max_tokens: int) -> Generation:
        messages = [{"role": one.role, "content": one.content} for one in conversation]
        reply = await self._policy.api.chat(messages, **await self._asked(max_tokens))
        self._count(reply)
        return Generation([Message("assistant", written(reply.text, reply.thoughts, self._protocol))])


class _IdsPlayer(_ApiPlayer):
    async def respond(self, conversation: list[int], max_tokens: int) -> Generation:
        reply = await self._policy.api.complete(conversation, **await self._asked(max_tokens))
        self._count(reply)
        log_probs = reply.choice.logprobs.token_logprobs if reply.choice.logprobs else None
        return Generation(list(reply.choice.token_ids), log_probs)
