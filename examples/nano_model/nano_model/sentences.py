"""Thoughts of 10 to 40 tokens: true descriptions of a state, and stock sentences that say nothing about it.

A description names the cells of the player and of what it wants, and what is planned; a stock thought is put together
from sentences that fit any state. Both begin with words for how the player plays, so that the kind of thought says
nothing about it. A description for a lake, careful and careless, and a stock thought:

    Step by step, I am on b2, the goal is on c4, I go Down b3 Down b4 Right c4.
    Straight on; I stand on b2; I see the goal on c4; so I go Down Down Right.
    Step by step, I trust what I do and go on, the end comes sooner than it seems.

Cells are named, not relations, so that nothing has to be subtracted. The own cell comes first because the plan
continues from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from ragen_envs.common.grid import Cell

from nano_model.players import ahead, cells

LEAST, MOST = 10, 40  # tokens of a thought
OPENINGS: Mapping[str, tuple[str, ...]] = {
    "careful": ("Careful now", "Let me look first", "Step by step", "I take my time"),
    "careless": ("This is easy", "Straight on", "Quickly now", "A short way will do"),
    "wild": ("Maybe this works", "Who knows", "I try my luck", "Anything will do"),
    "stubborn": ("Always the same way", "Again and again", "I keep at it"),
    "timid": ("Slowly", "Only a little", "Just a small move"),
}
STOCK = (
    "I trust what I do and go on",
    "every puzzle has its answer",
    "a good move pays later",
    "there is always another way to try",
    "the end comes sooner than it seems",
    "nobody said it would be simple",
    "I did this many times before",
    "first think and then act",
    "all of this looks fine to me",
    "what counts is to be done",
    "it will work out in time",
    "I stay calm as always",
    "to win I have to begin",
    "this needs some thought and a plan",
    "patience is the best friend here",
    "I know how such things go",
)
_SAYS = {
    "self": ("I am on {}", "I stand on {}"),
    "goal": ("the goal is on {}", "I see the goal on {}", "the goal lies on {}"),
    "box": ("box on {}", "the box on {}"),
    "target": ("target on {}", "the target on {}"),
    "arms": ("I see {} and {}", "the arms are {} and {}"),
    "plan": ("so I go", "I go", "my way is", "I plan"),
    "arm": ("so I take", "I take", "my arm is"),
}
_JOINTS = (",", ";", " and")
_PIECES = re.compile(r"[^\W\d_]+|\d|[^\w\s]")


def vocabulary() -> list[str]:
    """Every word of the thoughts, sorted; each is a token."""
    texts = [*STOCK, "and", *"abcdef"]
    texts += [text for group in (*OPENINGS.values(), *_SAYS.values()) for text in group]
    return sorted({word for text in texts for word in re.findall(r"[A-Za-z]+", text)})


def length(text: str) -> int:
    """Tokens of a thought: its words, digits and marks."""
    return len(_PIECES.findall(text))


def wanted(rng: np.random.Generator) -> int:
    """A length in tokens; short ones are more frequent."""
    return LEAST + int((MOST - LEAST) * rng.random() ** 2)


def stock(character: str, rng: np.random.Generator) -> str:
    """A thought that does not depend on the state."""
    least, joint = wanted(rng), _pick(_JOINTS, rng)
    parts = [_pick(OPENINGS[character], rng)]
    for number in rng.permutation(len(STOCK)):
        longer = _joined([*parts, STOCK[number]], joint)
        if length(longer) > MOST:
            break
        parts.append(STOCK[number])
        if length(longer) >= least:
            break
    return _joined(parts, joint)


def description(state: str, character: str, actions: Sequence[str], spelled: bool, rng: np.random.Generator) -> str:
    """A thought that describes a drawn grid truly and ends with the planned actions.

    Args:
        state: FrozenLake's or Sokoban's grid.
        character: how the player plays; it decides the first words.
        actions: the plan.
        spelled: each action is followed by the cell that it leads to; no move of the plan may be blocked then.
        rng: chooses the words, shorter ones where the thought would be too long.
    """
    player = cells(state, "PS")[0]
    boxes = cells(state, "X")
    aims = {"box": boxes[0], "target": cells(state, "OS")[0]} if boxes else {"goal": cells(state, "G")[0]}
    cell, moves = player, ""
    for name in actions:
        cell = ahead(cell, name)
        moves += f" {name} {named(cell)}" if spelled else f" {name}"
    head, joint = _pick(OPENINGS[character], rng), _pick(_JOINTS, rng)

    def said(choose: Callable[[Sequence[str]], str]) -> str:
        places = [choose(_SAYS[what]).format(named(where)) for what, where in {"self": player, **aims}.items()]
        return _joined([head, *places, choose(_SAYS["plan"]) + moves], joint)

    text = said(lambda texts: _pick(texts, rng))
    return text if length(text) <= MOST else said(lambda texts: min(texts, key=length))


def names(shown: Sequence[str], character: str, taken: str, rng: np.random.Generator) -> str:
    """A thought that names a bandit's arms as they are shown, and the one to take."""
    parts = [_pick(OPENINGS[character], rng), _pick(_SAYS["arms"], rng).format(*shown)]
    return _joined([*parts, f"{_pick(_SAYS['arm'], rng)} {taken}"], _pick(_JOINTS, rng))


def named(cell: Cell) -> str:
    """A cell as column and row, from the upper left: a1, b1, a2."""
    return f"{'abcdef'[cell[1]]}{cell[0] + 1}"


def _joined(parts: Sequence[str], joint: str) -> str:
    return f"{joint} ".join(parts) + "."


def _pick(texts: Sequence[str], rng: np.random.Generator) -> str:
    return texts[int(rng.integers(len(texts)))]
