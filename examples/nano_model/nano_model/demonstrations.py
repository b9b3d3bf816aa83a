"""Scripted play as training data: token ids exactly as in a rollout, with a mask on what the player said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ragen_envs.bandit import PAIRS

from nano_model.game import Game
from nano_model.players import WORDS, Mix, respond
from nano_model.worlds import DEMONSTRATION_SEEDS, WORLDS, World
from ragen_verl.env import make
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.protocol import Protocol

Sample = tuple[list[int], list[bool]]


@dataclass(frozen=True)
class Demonstration:
    """One (possibly unfinished) episode: what the player was told and what it said, turn by turn."""

    system: str
    users: list[str]
    responses: list[str]


def words() -> list[str]:
    """Every word that deserves a token of its own: the players' and the action names of all worlds."""
    names = {name for pairs in PAIRS.values() for pair in pairs for name in pair}
    for world in WORLDS:
        env = make(world.env_id, **world.kwargs)
        env.reset(seed=0)
        names |= set(env.actions or ())
    return sorted(names | set(WORDS))


def demonstrate(
    env: Any, protocol: Protocol, mix: Mix, seed: int, rng: np.random.Generator, turns: int
) -> Demonstration:
    """Let scripted players play at most `turns` turns of one episode."""
    game = Game(env, protocol, seed)
    own = mix.draw(rng)
    users, responses = [], []
    while not game.done and len(users) < turns:
        character = own if rng.random() < mix.loyalty else mix.draw(rng)
        users.append(game.user)
        responses.append(respond(game, character, rng, mix.slips))
        game.answer(responses[-1])
    return Demonstration(protocol.system(), users, responses)


def encode(demonstration: Demonstration, chat: ChatTokens) -> Sample:
    """Ids of a demonstration as a rollout would have them, and True on the ids the player said.

    The end-of-turn token belongs to the response, as it does when it is sampled.
    """
    ids = chat.initial(demonstration.system, demonstration.users[0])
    mask = [False] * len(ids)
    for number, response in enumerate(demonstration.responses):
        if number:
            between = chat.turn(True, demonstration.users[number])
            ids += between
            mask += [False] * len(between)
        said = [*chat.tokenizer.encode(response, add_special_tokens=False), chat.end_of_turn_id]
        ids += said
        mask += [True] * len(said)
    return ids, mask


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
        seed: of everything: levels, luck, and who plays what.
        single_turn: share of episodes cut after their first turn, which teach the map at less cost.
        no_think: share of episodes in the answer-only form.
        worlds: where to play.
    """
    rng = np.random.default_rng(seed)
    shares = np.array([world.share for world in worlds])
    envs = [make(world.env_id, **world.kwargs) for world in worlds]
    protocols = {
        (world.single_turn, think): Protocol(think=think, **world.budgets)
        for world in worlds
        for think in (True, False)
    }
    chats = {key: ChatTokens(tokenizer, protocol) for key, protocol in protocols.items()}
    for _ in range(count):
        which = int(rng.choice(len(worlds), p=shares / shares.sum()))
        key = (worlds[which].single_turn, bool(rng.random() >= no_think))
        turns = 1 if rng.random() < single_turn else 1_000
        level = int(rng.integers(DEMONSTRATION_SEEDS, 2**31))
        yield encode(demonstrate(envs[which], protocols[key], mix, level, rng, turns), chats[key])
