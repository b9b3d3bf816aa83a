"""Thoughts of 10 to 40 tokens: true descriptions of a state, and stock sentences that say nothing about it.

A description names where things are relative to each other and what is planned; a stock thought is put together from
sentences that fit any state. Both begin with words for how the player plays, so that the kind of thought says nothing
about it. A description for a lake, careful and careless, and a stock thought:

    Step by step, the goal is two down and one right of me, a hole is one left, I go Down b3 Down b4 Right c4.
    Straight on; I see the goal two down and one right; so I go Down Down Right.
    Step by step, I trust what I do and go on, the end comes sooner than it seems.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from ragen_envs.common.grid import Cell

from nano_model.players import ahead, cells, offset

LEAST, MOST = 10, 40  # tokens of a thought
COUNTS = ("no", "one", "two", "three", "four", "five")
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
    "goal": ("the goal is {} of me", "I see the goal {}", "the goal lies {}"),
    "box": ("the box is {} of me", "I see the box {}", "the box lies {}"),
    "target": ("the target is {} of the box", "the box belongs {}", "it has to go {}"),
    "hole": ("a hole is {} of me", "I see a hole {}", "the next hole lies {}"),
    "no hole": ("there is no hole", "I see no hole"),
    "self": ("I am on {}", "I stand on {}"),
    "arms": ("I see {} and {}", "the arms are {} and {}"),
    "plan": ("so I go", "I go", "my way is", "I plan"),
    "arm": ("so I take", "I take", "my arm is"),
}
_JOINTS = (",", ";", " and")
_PIECES = re.compile(r"[^\W\d_]+|\d|[^\w\s]")


def vocabulary() -> list[str]:
    """Every word of the thoughts, sorted; each is a token."""
    texts = [*STOCK, *COUNTS, "up down left right and", *"abcdef"]
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
        rng: chooses the words, and what is said beside the first relation and the plan.
    """
    player = cells(state, "PS")[0]
    first, *others = _relations(state, player, rng)
    cell, plan = player, _pick(_SAYS["plan"], rng)
    for name in actions:
        cell = ahead(cell, name)
        plan += f" {name} {named(cell)}" if spelled else f" {name}"
    most, joint = wanted(rng), _pick(_JOINTS, rng)
    head, said = _pick(OPENINGS[character], rng), {0}
    for number in rng.permutation(len(others)) + 1:
        chosen = [others[k - 1] if k else first for k in sorted(said | {int(number)})]
        if length(_joined([head, *chosen, plan], joint)) <= most:
            said.add(int(number))
    return _joined([head, *(others[k - 1] if k else first for k in sorted(said)), plan], joint)


def names(shown: Sequence[str], character: str, taken: str, rng: np.random.Generator) -> str:
    """A thought that names a bandit's arms as they are shown, and the one to take."""
    parts = [_pick(OPENINGS[character], rng), _pick(_SAYS["arms"], rng).format(*shown)]
    return _joined([*parts, f"{_pick(_SAYS['arm'], rng)} {taken}"], _pick(_JOINTS, rng))


def _relations(state: str, player: Cell, rng: np.random.Generator) -> list[str]:
    """What can be said of a grid, the most important first."""
    boxes, goals = cells(state, "X"), cells(state, "G")
    own = _pick(_SAYS["self"], rng).format(named(player))
    if boxes:
        target = cells(state, "OS")[0]
        return [_says("box", player, boxes[0], rng), _says("target", boxes[0], target, rng), own]
    holes = sorted(cells(state, "O"), key=lambda hole: abs(hole[0] - player[0]) + abs(hole[1] - player[1]))
    hole = _says("hole", player, holes[0], rng) if holes else _pick(_SAYS["no hole"], rng)
    return [_says("goal", player, goals[0], rng), hole, own]


def _says(what: str, start: Cell, end: Cell, rng: np.random.Generator) -> str:
    return _pick(_SAYS[what], rng).format(relation(start, end))


def relation(start: Cell, end: Cell) -> str:
    """Where one cell is from another, in words: `two down and one right`."""
    return " and ".join(f"{COUNTS[steps]} {name.lower()}" for name, steps in offset(start, end))


def named(cell: Cell) -> str:
    """A cell as column and row, from the upper left: a1, b1, a2."""
    return f"{'abcdef'[cell[1]]}{cell[0] + 1}"


def _joined(parts: Sequence[str], joint: str) -> str:
    return f"{joint} ".join(parts) + "."


def _pick(texts: Sequence[str], rng: np.random.Generator) -> str:
    return texts[int(rng.integers(len(texts)))]
