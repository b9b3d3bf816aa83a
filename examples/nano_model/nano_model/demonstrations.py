"""Scripted play as training data: token ids exactly as in a rollout, with a mask on what the player said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from ragen_envs.bandit import PAIRS

from nano_model.episodes import scripted
from nano_model.players import WORDS, Mix
from nano_model.worlds import DEMONSTRATION_SEEDS, WORLDS, World
from ragen_verl.env import Env, make
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.protocol import Protocol
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.rows import rows_of
from ragen_verl.rollout.trajectory import Trajectory

Sample = tuple[list[int], list[bool]]


def words() -> list[str]:
    """Every word that deserves a token of its own: the players' and the action names of all worlds."""
    names = {name for pairs in PAIRS.values() for pair in pairs for name in pair}
    for world in WORLDS:
        env = make(world.env_id, **world.kwargs)
        env.reset(seed=0)
        names |= set(env.actions or ())
    return sorted(names | set(WORDS))


def demonstrate(
    env: Env, protocol: Protocol, chat: ChatTokens, mix: Mix, seed: int, rng: np.random.Generator
) -> Trajectory:
    """Let scripted players play one episode."""
    return scripted(env, protocol, chat, seed, mix.player(env, protocol.think, rng))


def encode(trajectory: Trajectory) -> Sample:
    """Ids of a whole episode as a training would have them, and True on the ids the player said."""
    (row,) = rows_of(trajectory)
    mask = [False] * len(row.prompt_ids) + [bool(one) for one in row.response_mask]
    return [*row.prompt_ids, *row.response_ids], mask


def generate(
    tokenizer: Any,
    mix: Mix,
    count: int,
    seed: int | Sequence[int],
    *,
    single_turn: float = 0.6,
    no_think: float = 0.06,
    worlds: Sequence[World] = WORLDS,
) -> Iterator[Sample]:
    """`count` encoded demonstrations; the same arguments give the same ones.

    Args:
        tokenizer: the nano tokenizer.
        mix: who plays.
        count: episodes.
        seed: of everything: levels, transitions, and who plays what.
        single_turn: share of episodes cut after their first turn, which teach the map at less cost.
        no_think: share of episodes in the answer-only form.
        worlds: where to play.
    """
    rng = np.random.default_rng(seed)
    shares = np.array([world.share for world in worlds])
    envs = [make(world.env_id, **world.kwargs) for world in worlds]
    protocols = {
        (world.single_turn, think): Ragen(think=think, **world.budgets) for world in worlds for think in (True, False)
    }
    chats = {key: ChatTokens(tokenizer, protocol) for key, protocol in protocols.items()}
    for _ in range(count):
        which = int(rng.choice(len(worlds), p=shares / shares.sum()))
        key = (worlds[which].single_turn, bool(rng.random() >= no_think))
        protocol = protocols[key]
        if rng.random() < single_turn:
            protocol = replace(protocol, max_turns=1)
        level = int(rng.integers(DEMONSTRATION_SEEDS, 2**31))
        yield encode(demonstrate(envs[which], protocol, chats[key], mix, level, rng))
