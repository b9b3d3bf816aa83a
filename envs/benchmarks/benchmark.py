"""`Benchmark`: a finite environment with tools whose tasks have an official solution."""

from __future__ import annotations

from typing import Any

from gymnasium.error import ResetNeeded
from ragen_envs.benchmarks.packages import data_version

from ragen_verl.env.core import Step
from ragen_verl.env.tools import ToolEnv

__all__ = ["Benchmark"]


class Benchmark(ToolEnv):
    """Base class of benchmarks. A subclass gives `package`, `tasks`, `task_key`, `begin` and `gold`.

    Attributes:
        package: the package that holds the data.
    """

    package: str = ""
    _actions: list[str] | None = None
    _ended = _solved = False

    @property
    def version(self) -> str:
        """The version of the data, to be named beside a score."""
        return data_version(self.package)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the task that `options` or the seed choose."""
        super().reset(seed=seed)
        self._actions, self._ended, self._solved = [], False, False
        return self.begin(), {}

    def begin(self) -> str:
        """Build the world of `self.task`; return the first observation."""
        raise NotImplementedError

    def gold(self) -> list[str]:
        """The actions that solve the task from its beginning."""
        raise NotImplementedError

    def oracle(self) -> list[str]:
        """The rest of the official solution, where it has been followed so far."""
        if self._actions is None or self._ended:
            return []
        plan, count = self.gold(), len(self._actions)
        return plan[count:] if self._actions == plan[:count] else []

    def step(self, action: str) -> Step:
        """Make one call or pass on a reply."""
        if self._actions is None:
            raise ResetNeeded("Call reset before playing.")
        if self._ended:
            return self.outcome(terminated=True, success=self._solved, valid=False, effective=False)
        self._actions.append(action)
        step = super().step(action)
        if not step.observation.strip():
            self._shown = "(nothing)"
            step = step._replace(observation=self._shown)
        self._ended, self._solved = step.terminated, step.info["success"]
        return step
