"""Environments in the form of TRL's `environment_factory`: "trl:my_module:MyEnv", a class whose methods are tools."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

from ragen_envs.adapters.external import reject
from ragen_envs.adapters.randomness import GlobalRandomness

from ragen_verl.env.arguments import check_number, check_whole
from ragen_verl.env.core import Step
from ragen_verl.env.tools import Schema, ToolEnv, ToolError, tool

__all__ = ["TRLEnv", "named"]


class TRLEnv(ToolEnv):
    """## Description

    A class as TRL's `GRPOTrainer(environment_factory=...)` takes it: it is built without arguments, `reset(**row)`
    begins an episode with a row of the data and may return a text, and every other public method is a tool with type
    hints and a Google docstring. TRL itself is not needed.

    ## Action Space

    A call of a public method, or a reply, which ends the episode.

    ## Observation Space

    Text: the row's prompt with what `reset` returns, then the result of each call. What a method raises is its result,
    as in TRL.

    ## Starting State

    The row whose number is the group's seed modulo the number of rows, or `options={"task": i}`. Where `reset` takes
    `seed`, it gets the group's. The process's random generators have a stream of their own during each call.

    ## Rewards

    At the end, what `reward` gives for the episode; 0 before.

    ## Episode End

    Terminates with a reply without a call, or where the object has an attribute `done` that is true after a call.
    Solved: a reward of `success_return` or more.

    ## Arguments

    - `rows=None`: a .jsonl file; each line is a row, whose `prompt` (a text or messages) is the task. Without it there
      is one row without columns.
    - `reward=None`: "module:function", called as TRL calls it, with lists of one element: `environments`,
      `completions`, `prompts` and the row's columns; or None for the object's attribute `reward`.
    - `instruction=""`, `success_return=1.0`, `max_actions=20`.

    ## Version History

    - v0: first version.
    """

    external_arguments = ("rows", "reward")

    def __init__(
        self,
        name: str,
        *,
        rows: str | None = None,
        reward: str | None = None,
        instruction: str = "",
        success_return: float = 1.0,
        max_actions: int = 20,
    ) -> None:
        check_number("trl: success_return", success_return)
        check_whole("trl: max_actions", max_actions, 1)
        self.factory, self._scores = named("trl", name), named("trl", reward) if reward else None
        self.name, self.instruction = f"trl:{name}", instruction or "Use the tools, then reply."
        self.success_return, self.max_actions = float(success_return), max_actions
        self._rows = _rows(rows) if rows else ({},)
        self.tasks = len(self._rows) if rows else None
        self.randomness = GlobalRandomness()
        self._kit: ToolEnv | None = None
        _kit(self.factory)  # a method without type hints is refused here

    def task_key(self, task: int) -> str:
        """The row's content."""
        return json.dumps(self._rows[task], sort_keys=True)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Build the object and reset it with a row."""
        super().reset(seed=seed)
        self._row = self._rows[self.task or 0]
        self._kit, self._said, self._over, self._solved = _kit(self.factory)(), [], False, False
        self.randomness.seed(self.seed)
        with self.randomness():
            self._kit.inner = inner = self.factory()  # type: ignore[attr-defined]
            parameters = inspect.signature(inner.reset).parameters
            given = {**self._row, "seed": self.seed} if "seed" in parameters else self._row
            told = inner.reset(**given)
        self.randomness.seed(self.dynamics)
        return "\n\n".join(part for part in (_prompt(self._row), str(told or "")) if part) or "(no task)", {}

    @property
    def tools(self) -> list[Schema]:  # type: ignore[override]
        """The public methods of the class."""
        return _kit(self.factory)().tools

    def step(self, action: str) -> Step:
        """Call a method, or end the episode."""
        self.dynamics  # noqa: B018 (raises before the first reset)
        if self._over:
            return self.outcome(terminated=True, success=self._solved, valid=False, effective=False)
        self._said.append(action)
        step = super().step(action)
        if not step.terminated and getattr(self._kit.inner, "done", False) is True:
            end = self._end()
            step = end._replace(observation=step.observation, info={**step.info, "success": end.info["success"]})
        self._over, self._solved = step.terminated, step.info["success"]
        return step

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a method of the object."""
        with self.randomness():
            return self._kit.call(name, arguments)

    def message(self, text: str) -> Step:
        """End the episode."""
        return self._end()

    def _end(self) -> Step:
        with self.randomness():
            if self._scores is None:
                value = getattr(self._kit.inner, "reward", None)
                if value is None:
                    raise reject("trl", f"{self.name} has no attribute reward: give reward=module:function.")
            else:
                completion = [{"role": "assistant", "content": one} for one in self._said]
                columns = {key: [one] for key, one in self._row.items()}
                lists = {"prompts": [_prompt(self._row)], **columns, "completions": [completion]}
                [value] = self._scores(environments=[self._kit.inner], **lists)
        reward = float(value if value is not None else 0.0)
        return self.end("", reward, success=reward >= self.success_return)


def named(prefix: str, path: str) -> Callable[..., Any]:
    """Import what `module:attribute` names; raises RecipeError where it cannot be."""
    module, colon, attribute = path.partition(":")
    if not colon:
        raise reject(prefix, f"{path!r} names nothing: write module:attribute.")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise reject(prefix, f"{path!r} cannot be imported ({type(error).__name__}: {error}).") from error
    if not callable(found):
        raise reject(prefix, f"{path!r} cannot be called: name a class or a function.")
    return found


@lru_cache(maxsize=64)
def _kit(factory: Callable[..., Any]) -> type[ToolEnv]:
    """A class whose tools are the public methods of the objects that a factory builds."""
    kind = factory if isinstance(factory, type) else type(factory())
    names = [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
    methods = {name: tool(_passed(getattr(kind, name))) for name in names if name != "reset"}
    if not methods:
        raise reject("trl", f"{kind.__name__} has no public methods beside reset, so the model would have no tools.")
    made = type(kind.__name__, (ToolEnv,), methods)
    made().tools  # noqa: B018 (makes the schemas)
    return made


def _passed(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that calls the object's; what it raises is the result."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> str:
        try:
            return str(method(self.inner, *args, **kwargs))
        except Exception as error:
            raise ToolError(f"{type(error).__name__}: {error}") from error

    return call


@lru_cache(maxsize=16)
def _rows(file: str) -> tuple[dict[str, Any], ...]:
    try:
        rows = tuple(json.loads(line) for line in Path(file).read_text("utf-8").splitlines() if line.strip())
    except (OSError, ValueError) as error:
        raise reject("trl", f"rows={file} cannot be read as lines of JSON ({error}).") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise reject("trl", f"rows={file} has no rows: each line is an object of JSON.")
    return rows


def _prompt(row: dict[str, Any]) -> str:
    prompt = row.get("prompt") or ""
    return prompt if isinstance(prompt, str) else "\n\n".join(str(one["content"]) for one in prompt)
