"""The fixed sentences of the prompts, each of which gets a token of its own in the nano model's tokenizer.

They are rendered from the real protocol and the real environments. If their wording changes, the shipped tokenizer no
longer fits (a test says so) and the nano model must be built again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from nano_model.worlds import WORLDS, World
from ragen_verl.env import Env, make
from ragen_verl.rollout.protocol import Protocol
from ragen_verl.rollout.protocols.ragen import Ragen
from ragen_verl.rollout.trajectory import Turn

_STATE = "\0"
_TURNS = 10  # turn headers that get a token of their own
_SHORTEST = 5  # characters of a phrase; anything shorter is left to the ordinary vocabulary


def phrases(worlds: Sequence[World] = WORLDS) -> list[str]:
    """Every fixed sentence of the prompts in some worlds that is one token, sorted."""
    protocol = Ragen()
    found = {protocol.system_prompt, protocol.reward(0.0) + "\n\n", protocol.reward(0.0).removesuffix("0")}
    for think in (True, False):
        found |= set(_turn_pieces(Ragen(think=think, explain_invalid=True)))
        for world in worlds:
            env = make(world.env_id, **world.kwargs)
            env.reset(seed=0)
            found |= set(_first_pieces(env, Ragen(think=think, **world.budgets)))
    return sorted(found)


def _turn_pieces(protocol: Protocol) -> Iterator[str]:
    """What stands around the state of a turn: its header, the count of actions left, the answer format."""
    for number in range(1, _TURNS + 1):
        yield protocol.turn(number, _STATE, 7).split(_STATE)[0]
    for left in (1, 7):
        before, after = protocol.turn(1, _STATE, left).split(_STATE)[1].split(str(left), 1)
        yield from (before, after)
        yield from _pieces(after, ["[0-9]"])
    yield from _pieces(protocol.message([Turn("", [], [])], _STATE, 7), ["[0-9]"])


def _first_pieces(env: Env, protocol: Protocol) -> Iterator[str]:
    """The head of the first message, cut at the number of actions and at names that change between episodes."""
    text = protocol.first_user(env, _STATE).split(_STATE)[0]
    head = text.removesuffix(protocol.turn(1, _STATE, 7).split(_STATE)[0])
    names = [] if env.symbols else [re.escape(name) for name in env.actions or ()]
    yield from _pieces(head, [*names, rf"(?<=up to ){protocol.budget(env)}\b"])
    if names:  # the state is a text, not a map
        yield from _pieces(env.render(), names)


def _pieces(text: str, holes: Iterable[str]) -> Iterator[str]:
    """`text` cut at the state and at the patterns in `holes`; short pieces are dropped."""
    yield from (piece for piece in re.split("|".join([_STATE, *holes]), text) if len(piece) >= _SHORTEST)
