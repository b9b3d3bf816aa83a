"""BFCL v4, multi-turn: functions of eight small worlds, called over several requests of a user."""

from __future__ import annotations

import ast
import copy
import inspect
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from ragen_envs.benchmarks.benchmark import Benchmark
from ragen_envs.benchmarks.packages import need

from ragen_verl.env.arguments import check_choice
from ragen_verl.env.core import Step
from ragen_verl.env.tools import Schema, called, said

__all__ = ["BFCL", "CATEGORIES", "gold_calls"]

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
_TYPES = {"dict": "object", "float": "number", "double": "number", "tuple": "array", "list": "array", "any": "string"}
_MOST_CALLS = 40  # of one request; the longest of the official solutions has 34


class BFCL(Benchmark):
    """## Description

    The multi-turn part of the Berkeley Function-Calling Leaderboard, version 4 (package bfcl-eval, Apache-2.0, an
    extra). A user has several requests, one after the other; for each the model calls functions of file systems,
    vehicles, tickets, travel, trading and others, and ends with a reply. The worlds, the comparison of their states
    and that of the results are the package's own; calls are made on bound methods with arguments from JSON, where the
    package's runner evaluates the text of a call.

    ## Action Space

    A call of a function, or a reply, which ends the request. A request has at most 40 calls; where there are more, the
    episode ends without success. (The package counts a model's answers instead, 20, each with any number of calls.)

    ## Observation Space

    Text: the user's next request, or the result of the call. In `miss_func` a function may be added in the middle: its
    description comes as a message of the user, since what the model has read cannot change.

    ## Starting State

    The task whose number is the group's seed modulo 200, or `options={"task": i}`.

    ## Rewards

    1 at the end of a solved episode, 0 otherwise: the official score of the task.

    ## Episode End

    Terminates with the reply to the last request. Solved: after every request that has a solution the worlds are in the
    same state as after the official calls, and every result of these is among those of the model so far.

    ## Arguments

    - `category="base"`: "base", "miss_func" (functions are missing at first), "miss_param" (the user leaves something
      out at first), "long_context" (long results).

    As in the official runner a function that is held back can be called by a model that guesses its name: the official
    solution of `multi_turn_miss_func_49` does so.

    ## Version History

    - v0: first version.
    """

    instruction = (
        "Help a user by calling functions. Call as many as a request needs, one after the other, and reply in words "
        "when it is done, or when a function or a value that it needs is missing. The next request then follows."
    )
    package = "bfcl-eval"
    max_actions = 120
    isolation = "process"  # its functions compute powers of any size, and set a precision for the whole process

    def __init__(self, category: str = "base") -> None:
        check_choice("BFCL: category", category, CATEGORIES)
        self.category = category
        self.tasks = len(_entries(category))
        self._turn: int | None = None

    def task_key(self, task: int) -> str:
        """The task's official id."""
        return _entries(self.category)[task]["id"]

    def task_gold(self, task: int) -> str:
        """The official calls, in their order."""
        return json.dumps([turn for turn in _entries(self.category)[task]["gold"] if turn])

    def begin(self) -> str:
        """Build the worlds of a task; return the user's first request."""
        self._entry = _entries(self.category)[self.task]
        self._worlds, self._official = self._built(), self._built()
        self._functions, self._guessed = list(self._entry["functions"]), []
        self._turn, self._calls, self._results, self._right = 0, 0, [], True
        return self._request()

    def _built(self) -> dict[str, Any]:
        """New worlds of the task, by class."""
        found = {}
        for name in self._entry["involved_classes"]:
            found[name] = one = _class(name)()
            if name != "MathAPI":  # the only one without a state
                start = copy.deepcopy(self._entry["initial_config"].get(name, {}))
                one._load_scenario(start, long_context=self.category == "long_context")
        return found

    @property
    def tools(self) -> list[Schema]:  # type: ignore[override]
        """The functions that are offered now."""
        return [*self._functions, *self._guessed] if self._turn is not None else []

    def _request(self) -> str:
        """The user's words of the present turn; functions that were held back until now are added."""
        added = self._entry["held_back"].get(str(self._turn), [])
        self._functions = [*self._functions, *added]
        said = [one["content"] for one in self._entry["question"][self._turn]]
        if added:
            described = "\n".join(json.dumps(one["function"]) for one in added)
            said.insert(0, f"These functions are available from now on:\n{described}\nPlease try again with them.")
        return "\n".join(said)

    def _hidden(self) -> list[Schema]:
        """The functions that are held back for a later turn."""
        held_back = self._entry["held_back"].items()
        return [one for turn, added in held_back if int(turn) > self._turn for one in added]

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a function of the worlds."""
        result = _result(self._worlds, name, (), arguments)
        self._results.append(result)
        return result

    def step(self, action: str) -> Step:
        """Make a call or end a request."""
        if self._ended or self._turn is None:
            return super().step(action)
        known = len(self._results)
        self._guessed = [one for one in self._hidden() if called(one["function"]["name"])[:-4] in str(action)]
        step = super().step(action)
        self._guessed = []
        if (call := step.info["call"])["name"] is not None:
            self._calls += 1
            if len(self._results) == known:  # refused, which is a call to the official checker too
                self._results.append(call["result"])
            if self._calls > _MOST_CALLS:
                self._ended = True
                return self.end("Too many calls for one request.")._replace(info=step.info)
        return step

    def message(self, text: str) -> Step:
        """End the present request; the result is the next one."""
        self._right = self._judged(self._entry["gold"][self._turn]) and self._right
        self._turn, self._calls = self._turn + 1, 0
        if self._turn < len(self._entry["gold"]):
            return Step(self._request(), 0.0, False, False, {})
        return self.end("The user has no other request.", float(self._right), success=self._right)

    def _judged(self, gold: list[str]) -> bool:
        """Make the official calls of the present turn; compare states and results."""
        official = [_result(self._official, *gold_calls(text)) for text in gold]
        if not gold:  # nothing can be done in this turn, and nothing is compared
            return True
        checker = _checker()
        return bool(
            self._calls
            and checker.state_checker(self._worlds, self._official)["valid"]
            and checker.response_checker(self._results, official, self._turn)["valid"]
        )

    def gold(self) -> list[str]:
        """The official calls, with a reply after each request."""
        turns = [[called(name, **given) for name, given in self._named(turn)] for turn in self._entry["gold"]]
        return [action for turn in turns for action in (*turn, said("Done."))]

    def _named(self, gold: list[str]) -> list[tuple[str, dict[str, Any]]]:
        """Official calls with the names of all their arguments."""
        found = []
        for name, args, kwargs in map(gold_calls, gold):
            method = next(getattr(one, name) for one in self._worlds.values() if hasattr(one, name))
            found.append((name, dict(inspect.signature(method).bind(*args, **kwargs).arguments)))
        return found


def gold_calls(text: str) -> tuple[str, tuple, dict[str, Any]]:
    """Read an official call, `name(1, b='x')`, whose arguments are literals, without evaluating it."""
    call: Any = ast.parse(text, mode="eval").body
    given = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
    return call.func.id, tuple(map(ast.literal_eval, call.args)), given


def _result(worlds: dict[str, Any], name: str, args: tuple, kwargs: dict[str, Any]) -> str:
    """Call a function and return its result as the package writes it."""
    try:
        method = next(getattr(one, name) for one in worlds.values() if hasattr(one, name))
        result = method(*args, **kwargs)
    except Exception as error:  # the functions raise what they like
        return f"Error during execution: {error}"
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except (TypeError, ValueError):
            return str(result)
    return str(result)


def _checker() -> Any:
    return need("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker", "bfcl-eval", "bfcl")


def _class(name: str) -> Any:
    places = need("bfcl_eval.constants.executable_backend_config", "bfcl-eval", "bfcl").CLASS_FILE_PATH_MAPPING
    return getattr(need(places[name], "bfcl-eval", "bfcl"), name)


@lru_cache(maxsize=len(CATEGORIES))
def _entries(category: str) -> tuple[dict[str, Any], ...]:
    """The tasks of a category, each with `functions`, `held_back` (turn -> functions) and `gold` (turn -> calls)."""
    data = Path(need("bfcl_eval", "bfcl-eval", "bfcl").__file__).parent / "data"
    files = need("bfcl_eval.constants.executable_backend_config", "bfcl-eval", "bfcl").MULTI_TURN_FUNC_DOC_FILE_MAPPING
    name, found = f"BFCL_v4_multi_turn_{category}.json", []
    gold = {one["id"]: one["ground_truth"] for one in _lines(data / "possible_answer" / name)}
    for entry in _lines(data / name):
        held_back = entry.get("missed_function", {})
        hidden = {one for names in held_back.values() for one in names}
        listed = [
            one for kind in entry["involved_classes"] for one in _lines(data / "multi_turn_func_doc" / files[kind])
        ]
        schemas = {one["name"]: _schema(one) for one in listed}
        found.append(
            {
                **entry,
                "gold": gold[entry["id"]],
                "functions": [one for key, one in schemas.items() if key not in hidden],
                "held_back": {turn: [schemas[one] for one in names] for turn, names in held_back.items()},
            }
        )
    return tuple(found)


@lru_cache(maxsize=32)
def _lines(path: Path) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip())


def _schema(described: dict[str, Any]) -> Schema:
    """A function of the package as OpenAI's API describes it."""
    function = {name: described[name] for name in ("name", "description")}
    return {"type": "function", "function": {**function, "parameters": _typed(described["parameters"])}}


def _typed(schema: Any) -> Any:
    """A schema of the package with the types of JSON Schema."""
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    if isinstance(found.get("type"), str):
        found["type"] = _TYPES.get(found["type"], found["type"])
    if isinstance(found.get("properties"), dict):
        found["properties"] = {name: _typed(one) for name, one in found["properties"].items()}
    if "items" in found:
        found["items"] = _typed(found["items"])
    return found
