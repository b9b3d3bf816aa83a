"""Digests of all prompts that a recipe's episodes send to an engine, and of what the answers are read as."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragen_verl.config import RagenConfig
from ragen_verl.env import make
from ragen_verl.env.core import Env, random_action
from ragen_verl.env.hosting.threads import EnvWorkers
from ragen_verl.rollout.chat import Chat
from ragen_verl.rollout.episode import Generation, Limits, play

LIMITS = Limits(response_length=10**6, context_length=10**9)
TABLES = {
    "metamathqa": [
        {"query": f"{n} + 1?", "original_question": f"{n}?", "response": f"The answer is: {n + 1}"} for n in range(40)
    ],
    "countdown": [{"target": n + 3, "nums": [n, 1, 2]} for n in range(1, 41)],
}
"""Small tables of the same form in the place of the hub's."""


class Characters(Chat):
    """Ids are code points, so that a prompt is its text."""

    def initial(self, system: str, user: str, tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        told = [system, user, json.dumps(tools)] if tools else [system, user]
        return list(map(ord, "\0".join(told)))

    def turn(self, closed: bool, user: str) -> list[int]:
        return list(map(ord, f"\0{user}"))

    def closed(self, response_ids: Sequence[int]) -> bool:
        return False

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def tables(recipe: str, folder: Path) -> list[str]:
    """Overrides with which a recipe reads a small table instead of the hub's."""
    found = []
    for name, rows in TABLES.items():
        if name in recipe:
            file = folder / f"{name}.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            found += [f"ragen.{split}.envs.0.kwargs.dataset={file}" for split in ("train", "val")]
    return found


def digest(ragen: RagenConfig, seeds: Sequence[int] = (1,)) -> str:
    """The SHA-256 of an episode of each environment: every prompt, and every answer as it was read."""
    told: list = []
    for split in ragen.splits.values():
        for env in split.envs:
            for seed in seeds:
                local = env.id.rpartition("/")[2]  # also of an environment that a server gives
                told.append(asyncio.run(_episode(ragen, make(local, **env.kwargs_at(1)), seed)))
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


async def _episode(ragen: RagenConfig, env: Env, seed: int) -> list:
    rng, seen = np.random.default_rng(seed), []

    async def answer(ids: list[int], max_tokens: int) -> Generation:
        seen.append("".join(map(chr, ids)))
        turn, sep = len(seen), ragen.rollout.action_sep
        thought = f"thought {turn}</think> " if ragen.rollout.think else ""
        actions = sep.join([random_action(env, rng), " dance " if turn % 3 == 2 else random_action(env, rng)])
        text = f"{thought}<answer>{actions}</answer> and more" if turn % 4 else f"{actions}</answer"
        return Generation(list(map(ord, text if ragen.rollout.think else text.removeprefix("<answer>"))))

    with EnvWorkers(1) as workers:
        played = await play(
            env,
            seed=seed,
            rollout_index=0,
            protocol=ragen.rollout.chat_protocol(),
            chat=Characters(),
            generate=answer,
            limits=LIMITS,
            workers=workers,
            context=ragen.rollout.chat_context(),
        )
    assert played.error is None
    read = [[turn.format_ok, turn.think, turn.actions, turn.executed, turn.penalty] for turn in played.turns]
    return [seen, read, str(played.stop_reason), played.error]
