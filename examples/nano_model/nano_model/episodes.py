"""Episodes through the rollout's own code, with a scripted player or a plain PyTorch model where the engine is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ragen_verl.env import Env
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.episode import Generate, Generation, Limits, play
from ragen_verl.rollout.protocol import Protocol
from ragen_verl.rollout.trajectory import Trajectory

_LONG = 100_000  # tokens: no episode is cut for its length

Respond = Callable[[str], str]
"""The state as the player sees it, to its response without the prefill."""


async def episode(
    env: Env, protocol: Protocol, chat: ChatTokens, seed: int, generate: Generate, workers: EnvWorkers
) -> Trajectory:
    """Play one episode; raises RuntimeError where environment or player failed."""
    limits = Limits(response_length=_LONG, context_length=2 * _LONG)
    played = await play(
        env,
        seed=seed,
        rollout_index=0,
        protocol=protocol,
        chat=chat,
        generate=generate,
        limits=limits,
        workers=workers,
    )
    if played.excluded:
        raise RuntimeError(played.error)
    return played


def scripted(env: Env, protocol: Protocol, chat: ChatTokens, seed: int, respond: Respond) -> Trajectory:
    """Let a scripted player play one episode; its responses end with the end-of-turn token, as sampled ones do."""

    async def generate(ids: list[int], max_tokens: int) -> Generation:
        text = respond(env.render())
        return Generation([*chat.tokenizer.encode(text, add_special_tokens=False), chat.end_of_turn_id])

    played = episode(env, protocol, chat, seed, generate, _Here())
    try:
        played.send(None)  # nothing in it waits, and a loop with a thread for each episode takes ten times as long
    except StopIteration as end:
        return end.value
    raise RuntimeError("A scripted episode waits for something.")


class _Here(EnvWorkers):
    """Runs calls at once, in the caller's thread and without a time limit."""

    def __init__(self) -> None:
        pass

    async def call(self, function: Callable[..., Any], *args: Any, timeout: float, **kwargs: Any) -> Any:
        return function(*args, **kwargs)


class Batcher:
    """Answers many episodes at once: when each that still plays has asked, in the order of their numbers.

    Args:
        players: how many play.
        answer: prompts, in order, to the sampled ids of each.
        rows: prompts that are answered side by side at most.
    """

    def __init__(self, players: int, answer: Callable[[list[list[int]]], Sequence[list[int]]], rows: int) -> None:
        self._playing, self._answer, self._rows = players, answer, rows
        self._asked: dict[int, tuple[list[int], asyncio.Future[list[int]]]] = {}

    async def ask(self, number: int, ids: list[int]) -> list[int]:
        """The answer to one episode's prompt."""
        future = asyncio.get_running_loop().create_future()
        self._asked[number] = ids, future
        self._answer_all()
        return await future

    def leave(self) -> None:
        """One episode is over."""
        self._playing -= 1
        self._answer_all()

    def _answer_all(self) -> None:
        if not self._asked or len(self._asked) < self._playing:
            return
        asked = [self._asked[number] for number in sorted(self._asked)]
        self._asked.clear()
        for start in range(0, len(asked), self._rows):
            some = asked[start : start + self._rows]
            answers = self._answer([ids for ids, _ in some])
            for (_, future), answer in zip(some, answers, strict=True):
                future.set_result(answer)
