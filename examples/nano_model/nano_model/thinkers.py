"""Models that think in sentences: players whose thoughts are sentences, and what such a model is trained on.

In an episode the player's thoughts are all descriptions or all stock sentences. How well it plays is drawn apart from
that, so that only their use favours a kind. No seed, arm or variant of a held-out evaluation is among the
demonstrations: the bandit's arms have made-up names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from ragen_envs.bandit import Bandit

from nano_model import sentences
from nano_model.build import ABLE, MIXED, Recipe, Stage
from nano_model.players import AIMLESS, Mix, decide, slip
from nano_model.worlds import World
from ragen_verl.cpu.nano_model.thinkers import THINKERS, thinker_path
from ragen_verl.env import Env

KINDS = ("described", "stock")
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"
_BANDITS = 2_000  # each is met a few times only, so that its names are read and not known by heart


@dataclass(frozen=True)
class Thinkers(Mix):
    """Players whose thoughts are sentences; `described` is the share of episodes with descriptions of the state."""

    described: float = 0.5

    def player(self, env: Env, think: bool, rng: np.random.Generator) -> Callable[[str], str]:
        """The player of one episode: the state as it is shown, to the response."""
        kind, own = KINDS[int(rng.random() >= self.described)], self.draw(rng)
        return lambda state: respond(env, state, think, kind, self.of_turn(own, rng), rng, self.slips)


def respond(
    env: Env, state: str, think: bool, kind: str, character: str, rng: np.random.Generator, slips: float
) -> str:
    """A response of `character` to a state, with thoughts of a kind or without, without the prefill."""
    thought, actions = consider(env, state, kind, character, rng)
    answer = " || ".join(actions)
    text = f"{thought}</think><answer>{answer}</answer>" if think else f"{answer}</answer>"
    return slip(text, answer, rng) if rng.random() < slips else text


def consider(env: Env, state: str, kind: str, character: str, rng: np.random.Generator) -> tuple[str, list[str]]:
    """A thought of a kind, and the actions that follow; on a bandit any arm, whatever the character."""
    if isinstance(env, Bandit):
        actions = [env.actions[int(rng.integers(2))]]
        thought = sentences.names(env.actions, character, actions[0], rng) if kind == "described" else None
    else:
        marks, actions = decide(env, state, character, rng)
        spelled = character == "careful" and marks not in AIMLESS.values()  # it has a plan
        described = kind == "described"
        thought = sentences.description(state, character, actions, spelled, rng) if described else None
    return thought or sentences.stock(character, rng), actions


def made_up(count: int) -> list[tuple[str, str]]:
    """`count` pairs of different made-up names, always the same."""
    rng, found = np.random.default_rng(0), []
    while len(found) < count:
        pair = [_name(rng) for _ in range(2)]
        if pair[0] != pair[1]:
            found.append((pair[0], pair[1]))
    return found


def _name(rng: np.random.Generator) -> str:
    """Three to eight letters that can be spoken."""
    kinds = (_CONSONANTS, _VOWELS, _CONSONANTS, _CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS, _CONSONANTS)
    return "".join(kind[rng.integers(len(kind))] for kind in kinds[: rng.integers(3, 9)]).capitalize()


WORLDS = (
    World("FrozenLake", "FrozenLake-v0", {"success_rate": 1.0}, share=0.34),
    World("FrozenLake, slippery", "FrozenLake-v0", share=0.12),
    World("Sokoban", "Sokoban-v0", share=0.42),
    *(
        World(f"Bandit {low} {high}", "Bandit-v0", {"low": low, "high": high}, 0.12 / _BANDITS, single_turn=True)
        for low, high in made_up(_BANDITS)
    ),
)


@dataclass(frozen=True)
class ThoughtRecipe(Recipe):
    """A curriculum like that of `nano_model.build.Recipe`; each fifth episode has no thoughts.

    Descriptions teach to read the map and are more frequent at first. In the last stage, which decides how often the
    model thinks and plays like whom, they are half of the episodes. One thread, so that models can be built side by
    side.
    """

    stages: tuple[Stage, ...] = (
        Stage(Thinkers(ABLE.shares, ABLE.loyalty, described=0.9), 24_000, 1.0),
        Stage(Thinkers(ABLE.shares, ABLE.loyalty, described=0.8), 36_000, 0.5),
        Stage(Thinkers(MIXED.shares, MIXED.loyalty, described=0.5), 12_000, 0.5),
    )
    threads: ClassVar[int] = 1
    worlds: ClassVar[Sequence[World]] = WORLDS
    no_think: ClassVar[float] = 0.2
    files: ClassVar[tuple[str, ...]] = (*Recipe.files, "sentences", "thinkers")

    def words(self) -> list[str]:
        """Every word with a token of its own; names of arms are spelled."""
        return sorted({*sentences.vocabulary(), "maybe", "P", "G", "X", "O", "S", "Up", "Down", "Left", "Right"})

    def home(self, seed: int, key: str) -> Path:
        """Where the package looks for the model: `${ragen_nano:thoughts,SEED}`; other seeds go elsewhere."""
        return thinker_path(seed) if seed in THINKERS else super().home(seed, key)
