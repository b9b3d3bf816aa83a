"""Tower of Hanoi: move a tower of discs from peg to peg, never a larger disc onto a smaller one."""

from __future__ import annotations

from typing import Any

from ragen_envs.common.puzzle import Puzzle

from ragen_verl.env import Step
from ragen_verl.env.arguments import check_switch, check_whole

__all__ = ["Hanoi"]

_PEGS = "ABC"


class Hanoi(Puzzle):
    """## Description

    Three pegs and discs of different sizes. One disc is moved at a time, from the top of one peg to the top of
    another, never onto a smaller one. The goal is the whole tower on peg C.

    ## Action Space

    The names "A to B", "A to C", "B to A", "B to C", "C to A", "C to B", in this order.

    ## Observation Space

    Text: one line per peg with its discs from bottom to top, 1 the smallest, such as "A: 3 1"; "-" for an empty peg.

    ## Starting State

    With `scattered`, every disc lies on a peg drawn uniformly, larger ones below smaller ones; a solved start is drawn
    again. Otherwise the tower stands on peg A. Depends on the seed alone.

    ## Rewards

    1 for completing the tower, 0 otherwise.

    ## Episode End

    Terminates when all discs are on peg C (success); truncates after 4 * 2 ** discs actions. A move from an empty peg
    or onto a smaller disc changes nothing and is not effective.

    ## Arguments

    - `discs=3`: 1 to 8. No start needs more than 2 ** discs - 1 moves; `max_actions` is twice that.
    - `scattered=True`: start with the discs on any pegs; False starts with the tower on peg A for every seed.

    ## Version History

    - v0: first version.
    """

    actions = tuple(f"{source} to {target}" for source in _PEGS for target in _PEGS if source != target)

    def __init__(self, discs: int = 3, scattered: bool = True) -> None:
        check_whole("Hanoi's discs", discs, 1, 8)
        check_switch("Hanoi's scattered", scattered)
        self.discs, self.scattered = discs, scattered
        self.max_actions = 2 * (2**discs - 1)
        self.instruction = (
            f"You are solving the Tower of Hanoi with {discs} discs on the pegs A, B and C; disc 1 is the smallest. "
            "Each line shows a peg's discs from bottom to top. An action such as 'A to C' moves the top disc of A onto "
            "C; a disc never goes onto a smaller one. Having all discs on C earns 1."
        )
        self.peg_of = [0] * discs
        self._limit = 4 * 2**discs

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Place the discs."""
        super().reset(seed=seed)
        self.peg_of = [0] * self.discs
        if self.scattered:
            self.peg_of = self.np_random.integers(3, size=self.discs).tolist()
            while self._solved():
                self.peg_of = self.np_random.integers(3, size=self.discs).tolist()
        return self.render(), {}

    def step(self, action: str) -> Step:
        """Move a disc; an unknown name or a forbidden move changes nothing."""
        _ = self.dynamics  # before the first reset this raises gymnasium's ResetNeeded
        name = self.name_of(action)
        if name is None or self._solved():
            return self._result(0.0, valid=name is not None, effective=False)
        source, target = _PEGS.index(name[0]), _PEGS.index(name[-1])
        disc, covered = self._top(source), self._top(target)
        legal = disc < covered
        if legal:
            self.peg_of[disc] = target
        self._actions_made += 1
        return self._result(float(self._solved()), valid=True, effective=legal)

    def _top(self, peg: int) -> int:
        """Return the smallest disc on a peg, counted from 0, or the number of discs if there is none."""
        return next((disc for disc, where in enumerate(self.peg_of) if where == peg), self.discs)

    def _solved(self) -> bool:
        return all(peg == 2 for peg in self.peg_of)

    def render(self) -> str:
        """Return the pegs, one per line."""
        lines = []
        for peg, letter in enumerate(_PEGS):
            discs = [str(disc + 1) for disc in reversed(range(self.discs)) if self.peg_of[disc] == peg]
            lines.append(f"{letter}: {' '.join(discs) or '-'}")
        return "\n".join(lines)

    def oracle(self) -> list[str]:
        """Return the shortest solution from the current state; [] once it is solved."""
        plan: list[str] = []
        self._gather(self.discs - 1, 2, list(self.peg_of), plan)
        return plan

    def _gather(self, disc: int, target: int, peg_of: list[int], plan: list[str]) -> None:
        """Append the moves that bring `disc` and all smaller ones onto `target`.

        The largest disc that is elsewhere moves once, after the smaller ones have gathered on the third peg; towards a
        single peg this is the shortest way from any state.
        """
        if disc < 0:
            return
        source = peg_of[disc]
        if source != target:
            self._gather(disc - 1, 3 - source - target, peg_of, plan)
            plan.append(f"{_PEGS[source]} to {_PEGS[target]}")
            peg_of[disc] = target
        self._gather(disc - 1, target, peg_of, plan)
