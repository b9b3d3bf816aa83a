"""Blocksworld: rearrange stacks of blocks into the stacks of the goal."""

from __future__ import annotations

import heapq
import string
from collections.abc import Iterator
from typing import Any

import numpy as np
from ragen_envs.common.puzzle import Puzzle

from ragen_verl.env import Step
from ragen_verl.env.arguments import check_whole

__all__ = ["TABLE", "Blocksworld", "State", "after", "moves"]

TABLE = -1
_ORACLE_STATES = 20_000

#: below[block] is the block it stands on, or TABLE.
State = tuple[int, ...]


class Blocksworld(Puzzle):
    """## Description

    Lettered blocks in stacks on a table large enough for all. One block is moved at a time; it must have nothing on
    top, and so must the block it is put on. The goal names for every block what it stands on.

    ## Action Space

    "A onto B" for every two blocks and "A onto table" for every block, ordered by the block moved.

    ## Observation Space

    Text: the stacks now and in the goal, one line each. A stack is written from bottom to top, such as "A B C"; stacks
    are separated by " | " and sorted by their lowest block.

    ## Starting State

    Start and goal are drawn in the same way: the blocks come in random order, and each goes onto the table or onto one
    of the present stacks, all equally likely. A goal equal to the start is drawn again. Both depend on the seed alone.

    ## Rewards

    1 for reaching the goal, 0 otherwise.

    ## Episode End

    Terminates at the goal (success); truncates after 20 * blocks actions. A move that is not possible, or a move to the
    block's present place, changes nothing and is not effective.

    ## Arguments

    - `blocks=4`: 2 to 8. No task needs more than 2 * (blocks - 1) moves; `max_actions` is 3 * blocks.

    ## Version History

    - v0: first version.
    """

    def __init__(self, blocks: int = 4) -> None:
        check_whole("Blocksworld's blocks", blocks, 2, 8)
        self.blocks = blocks
        self.max_actions = 3 * blocks
        self._limit = 20 * blocks
        self._moves = {_name(block, onto): (block, onto) for block, onto in _all_moves(blocks)}
        self.actions = tuple(self._moves)
        self.instruction = (
            f"You are rearranging {blocks} blocks. Stacks are written from bottom to top and separated by |. An action "
            'moves one block that has nothing on top: "A onto B" puts it on a block that has nothing on top, "A onto '
            'table" on the table. Make the stacks of the goal, in any order: that earns 1.'
        )
        self.below: State = (TABLE,) * blocks
        self.goal: State = self.below

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Draw stacks and a different goal."""
        super().reset(seed=seed)
        self.below = self.goal = self._draw()
        while self.goal == self.below:
            self.goal = self._draw()
        return self.render(), {}

    def _draw(self) -> State:
        below, tops = [TABLE] * self.blocks, []
        for block in self.np_random.permutation(self.blocks).tolist():
            place = int(self.np_random.integers(len(tops) + 1))
            if place < len(tops):
                below[block], tops[place] = tops[place], block
            else:
                tops.append(block)
        return tuple(below)

    def step(self, action: str) -> Step:
        """Move a block; an unknown name or a move that is not possible changes nothing."""
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        name = self.name_of(action)
        if name is None or self._solved():
            return self._result(0.0, valid=name is not None, effective=False)
        possible = self._moves[name] in moves(self.below)
        if possible:
            self.below = after(self.below, *self._moves[name])
        self._actions_made += 1
        return self._result(float(self._solved()), valid=True, effective=possible)

    def _solved(self) -> bool:
        return self._dynamics is not None and self.below == self.goal

    def render(self) -> str:
        """Return the stacks now and in the goal."""
        return f"Now:  {_stacks(self.below)}\nGoal: {_stacks(self.goal)}"

    def oracle(self) -> list[str]:
        """Return a plan: the shortest for up to 6 blocks and mostly for more; [] once the goal is reached."""
        plan = _shortest(self.below, self.goal)
        if plan is None:
            plan = _by_way_of_the_table(self.below, self.goal)
        return [_name(*move) for move in plan]


def _all_moves(blocks: int) -> Iterator[tuple[int, int]]:
    for block in range(blocks):
        yield from ((block, onto) for onto in [*range(blocks), TABLE] if onto != block)


def _name(block: int, onto: int) -> str:
    letters = string.ascii_uppercase
    return f"{letters[block]} onto {'table' if onto == TABLE else letters[onto]}"


def _stacks(below: State) -> str:
    above = {under: block for block, under in enumerate(below) if under != TABLE}
    stacks = []
    for block, under in enumerate(below):
        if under == TABLE:
            stack = [block]
            while stack[-1] in above:
                stack.append(above[stack[-1]])
            stacks.append(" ".join(string.ascii_uppercase[rollout_index] for rollout_index in stack))
    return " | ".join(stacks)


def moves(below: State) -> list[tuple[int, int]]:
    """Return the moves (block, new place) that change something."""
    clear = [block for block in range(len(below)) if block not in below]
    ways = [(block, onto) for block in clear for onto in clear if onto != block]
    return ways + [(block, TABLE) for block in clear if below[block] != TABLE]


def after(below: State, block: int, onto: int) -> State:
    """Return the stacks after one possible move."""
    return (*below[:block], onto, *below[block + 1 :])


def _misplaced(below: State, goal: State) -> list[int]:
    """Return the blocks that stand on something wrong or above such a block: each has to move at least once."""

    def settled(block: int) -> bool:
        return block == TABLE or (below[block] == goal[block] and settled(below[block]))

    return [block for block in range(len(below)) if not settled(block)]


def _shortest(start: State, goal: State) -> list[tuple[int, int]] | None:
    """Return a shortest plan by A*, None if it takes more than 20,000 states (never for up to 6 blocks)."""
    came: dict[State, tuple[State, tuple[int, int]] | None] = {start: None}
    cost = {start: 0}
    queue = [(len(_misplaced(start, goal)), 0, start)]
    while queue and len(came) <= _ORACLE_STATES:
        _, minus_made, state = heapq.heappop(queue)  # among equals the deepest first
        if state == goal:
            return _path(came, state)
        for move in moves(state):
            following, made = after(state, *move), 1 - minus_made
            if made < cost.get(following, np.inf):
                cost[following], came[following] = made, (state, move)
                heapq.heappush(queue, (made + len(_misplaced(following, goal)), -made, following))
    return None


def _path(came: dict, state: State) -> list[tuple[int, int]]:
    plan = []
    while (step := came[state]) is not None:
        state, move = step
        plan.append(move)
    return plan[::-1]


def _by_way_of_the_table(below: State, goal: State) -> list[tuple[int, int]]:
    """Put every misplaced block on the table, then build: at most twice the shortest plan."""
    plan: list[tuple[int, int]] = []
    while below != goal:
        wrong = set(_misplaced(below, goal))
        home = [(b, to) for b, to in moves(below) if b in wrong and to == goal[b] and to not in wrong]
        move = home[0] if home else next((b, to) for b, to in moves(below) if b in wrong and to == TABLE)
        plan.append(move)
        below = after(below, *move)
    return plan
