"""`Puzzle`, the base class of puzzles: they terminate when solved, and are truncated after a number of actions."""

from __future__ import annotations

from typing import Any

from ragen_verl.env import Env, Step

__all__ = ["Puzzle"]


class Puzzle(Env):
    """Base class of puzzles. A subclass gives `_limit` and `_solved`, and its `step` counts in `_actions_made`.

    Attributes:
        _limit: counted actions after which an episode that is not solved is truncated.
        _actions_made: how many were counted since the reset.
    """

    _limit: int
    _actions_made = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Seed the generators and reset the count of actions."""
        self._actions_made = 0
        return super().reset(seed=seed, options=options)

    def _solved(self) -> bool:
        raise NotImplementedError

    def _result(self, reward: float, *, valid: bool, effective: bool) -> Step:
        solved = self._solved()
        truncated = not solved and self._actions_made >= self._limit
        return self.outcome(
            reward, terminated=solved, truncated=truncated, success=solved, valid=valid, effective=effective
        )
