"""`ToolEnv`: environments whose actions are calls of tools, and `@tool`, which makes a method one.

An action stays text: canonical JSON `{"name": ..., "arguments": {...}}` for a call and `{"message": ...}` for a reply
without one. So threads, processes, servers, records and oracles need no rule of their own for tools. This module is
loaded by environments with tools alone: pydantic takes half a second to import.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Annotated, Any, NotRequired, TypeVar, get_type_hints

import numpy as np
from jsonschema import ValidationError as SchemaError
from jsonschema import validate
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ragen_verl.env.calls import called, meant, said
from ragen_verl.env.core import Step
from ragen_verl.env.text import FreeTextEnv, encodable
from ragen_verl.errors import RecipeError

__all__ = ["AsksHuman", "Schema", "ToolEnv", "ToolError", "called", "said", "tool"]

Schema = dict[str, Any]
"""A function as OpenAI's API describes it: `{"type": "function", "function": {"name", "description", ...}}`."""

_T = TypeVar("_T", bound=Callable)
_MARK = "_ragen_tool"
_PARAMETER = re.compile(r"\s*(\w+)\s*(?:\([^)\n]*\))?\s*:\s*(.*)")
_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Example|Examples|Note|Notes):\s*$")


class ToolError(Exception):
    """Raise it in a tool for a call that cannot work; its text is the result that the model reads.

    Args:
        text: what is wrong, for the model.
        kind: the kind of error in metrics and records.
    """

    def __init__(self, text: str, kind: str = "tool") -> None:
        super().__init__(text)
        self.kind = kind


def tool(method: _T | None = None, *, parameters: Mapping[str, Any] | None = None) -> Any:
    """Decorator: make a method of a `ToolEnv` a tool.

    Its name, its type hints and its Google docstring (`Args:`) become the schema that the model reads; every parameter
    has a type hint and a line in the docstring. The method returns the result as text, text and a reward, or a `Step`.

    Args:
        method: the method.
        parameters: a JSON Schema of the arguments, for what type hints cannot say; arguments are checked against it and
            passed as they are.
    """

    def decorate(function: _T) -> _T:
        setattr(function, _MARK, parameters or True)
        return function

    return decorate if method is None else decorate(method)


class ToolEnv(FreeTextEnv):
    """Base class of environments with tools.

    A subclass marks methods with `@tool` and writes `reset`, which returns the first observation; `message` if a reply
    without a call means something; and `instruction`. A tool ends the episode by returning `self.end(...)`. A call that
    cannot be made (an unknown name, wrong arguments, a `ToolError`) is answered with a text that says why, costs the
    model's turn and changes nothing. Any other exception of a tool is a failure of the environment.

    Tools that are no methods: override `tools` and `call`.
    """

    _shown: str = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Remember what `reset` returned, for `render`."""
        super().__init_subclass__(**kwargs)
        if "reset" in vars(cls):
            cls.reset = _shown_by(cls.reset)  # type: ignore[method-assign]

    @property
    def tools(self) -> list[Schema]:  # type: ignore[override]
        """The tools of this episode, each as OpenAI's API describes a function."""
        return [schema for schema, _ in _tools(type(self)).values()]  # type: ignore[arg-type]

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call one of `tools` and return its result: text, text and a reward, or a `Step`.

        Args:
            name: it is among `tools`.
            arguments: as the model wrote them; those that the schema wants as something else than text are read from
                JSON.

        Raises:
            ToolError: the call cannot be made.
        """
        _, adapter = _tools(type(self))[name]  # type: ignore[arg-type]
        try:
            given = adapter(arguments)
        except ValidationError as error:
            raise ToolError(f"{name} was not called: {_told(error)}", "arguments") from None
        except SchemaError as error:
            where = "".join(f"{one}: " for one in error.absolute_path)
            raise ToolError(f"{name} was not called: {where}{error.message[:300]}.", "arguments") from None
        return getattr(self, name)(**given)

    def message(self, text: str) -> Any:
        """Answer a reply without a call, in the forms of `call`: the text is the user's next message.

        By default the episode ends without success.
        """
        return self.end("")

    def end(self, text: str = "", reward: float = 0.0, *, success: bool = False, **numbers: float) -> Step:
        """The step that ends the episode: its last text, its reward, and whether the task is solved."""
        self._shown = text
        return self.outcome(reward, terminated=True, success=success, **numbers)  # type: ignore[arg-type]

    def step(self, action: str) -> Step:
        """Make one call or pass on a reply, see `called` and `said`; any other text is answered with an error.

        The info has `call`: the tool's name and arguments (both None for a reply and where nothing could be read), the
        result, and the kind of error: "" (none), "malformed", "unknown_tool", "arguments", or a `ToolError`'s own.
        """
        found = meant(action)
        name, arguments = found.get("name"), found.get("arguments")
        try:
            if "message" in found:
                result = self.message(found["message"])
            elif "error" in found:
                raise ToolError(found["error"], "malformed")
            else:
                known = {one["function"]["name"]: one["function"].get("parameters") or {} for one in self.tools}
                if name not in known:
                    raise ToolError(f"There is no tool {name!r}; the tools are {', '.join(known)}.", "unknown_tool")
                arguments = _typed(arguments, known[name])
                result = self.call(name, arguments)
        except ToolError as error:
            text, valid = encodable(str(error)), error.kind not in ("malformed", "unknown_tool", "arguments")
            done = Step(text, 0.0, False, False, {"success": False, "action_is_valid": valid})
            return self._told(done, name, arguments, error.kind, effective=False)
        return self._told(_step(result, name or "message"), name, arguments, "")

    def _told(self, step: Step, name: str | None, arguments: Any, error: str, effective: bool = True) -> Step:
        self._shown = step.observation
        call = {"name": name, "arguments": arguments, "result": step.observation, "error": error}
        flags = {"success": False, "action_is_valid": True, "action_is_effective": effective}
        return step._replace(info={**flags, **step.info, "call": call})

    def render(self) -> str:
        """Return the last result, or the first observation."""
        return self._shown

    def random_action(self, rng: np.random.Generator) -> str:
        """A call of a random tool with arguments that fit its schema; now and then a reply without a call."""
        tools = self.tools
        if not tools or rng.random() < 0.02:
            return said("I am done.")
        function = tools[int(rng.integers(len(tools)))]["function"]
        words = [word.strip(".,;:!?\"'()") for word in f"{self.instruction} {self._shown}".split()[-200:]] or ["it"]
        given = (function.get("parameters") or {}).get("properties") or {}
        return called(function["name"], **{key: _random_value(one, rng, words) for key, one in given.items()})


class AsksHuman(ToolEnv):
    """Base class of environments with tools and a person who can be asked: the tool `ask_human`.

    Attributes:
        person: who answers: from a question to an answer. `ragen-verl env play` sets it to the one at the keyboard;
            where it is None, as in training, the scripted person of `answer` does.
    """

    person: Callable[[str], str] | None = None

    @tool
    def ask_human(self, question: str) -> str:
        """Ask a person for what no other function can find out.

        Args:
            question: The question.
        """
        return (self.person or self.answer)(question)

    def answer(self, question: str) -> str:
        """What the scripted person says to a question; a subclass that knows more overrides it."""
        return "I do not know."


# -- schemas ----------------------------------------------------------------------------------------------------------


@cache
def _tools(kind: type[ToolEnv]) -> dict[str, tuple[Schema, Callable[[dict], dict]]]:
    """Name -> (schema, what checks and converts arguments) of the marked methods, in the order of their definition."""
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    marked = {name: getattr(kind, name, None) for name in names}
    return {name: _tool(name, one) for name, one in marked.items() if callable(one) and hasattr(one, _MARK)}


def _tool(name: str, method: Callable) -> tuple[Schema, Callable[[dict], dict]]:
    description, told = _docstring(method)
    mark = getattr(method, _MARK)
    if mark is not True:
        parameters = dict(mark)

        def check(arguments: dict) -> dict:
            validate(arguments, parameters)
            return arguments

        return _schema(name, description, parameters), check
    hints = get_type_hints(method, include_extras=True)
    fields: dict[str, Any] = {}
    for one in list(inspect.signature(method).parameters.values())[1:]:
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise RecipeError(f"The tool {name} has the parameter {one}: a tool's parameters have names.")
        if one.name not in hints or one.name not in told:
            raise RecipeError(
                f"The parameter {one.name} of the tool {name} needs a type hint and a line in the docstring's Args."
            )
        hint: Any = Annotated[hints[one.name], Field(description=told[one.name])]  # type: ignore[valid-type, name-defined]
        fields[one.name] = hint if one.default is one.empty else NotRequired[hint]
    arguments: Any = TypedDict("Arguments", fields)  # type: ignore[operator]
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    adapter: Any = TypeAdapter(arguments)
    return _schema(name, description, _simple(adapter.json_schema())), adapter.validate_python


def _schema(name: str, description: str, parameters: Mapping[str, Any]) -> Schema:
    function = {"name": name, "description": description, "parameters": dict(parameters)}
    return {"type": "function", "function": function}


def _docstring(method: Callable) -> tuple[str, dict[str, str]]:
    """A Google docstring's text before its sections, and the text of each argument."""
    description, arguments, section, indent = [], {}, "", 0
    name = ""
    for line in inspect.cleandoc(method.__doc__ or "").splitlines():
        if found := _SECTION.match(line):
            section, indent = found[1], 0
        elif not section:
            description.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            indent = indent or len(line) - len(line.lstrip())
            begins = len(line) - len(line.lstrip()) <= indent and _PARAMETER.fullmatch(line)
            if begins:
                name = begins[1]
                arguments[name] = begins[2].strip()
            elif name:
                arguments[name] = f"{arguments[name]} {line.strip()}".strip()
    return "\n".join(description).strip(), arguments


def _simple(schema: Any) -> Any:
    """A schema of pydantic's in the words of transformers' `get_json_schema`: no titles, defaults or null branches."""
    if isinstance(schema, list):
        return [_simple(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: {name: _simple(one) for name, one in value.items()} if key in ("properties", "$defs") else _simple(value)
        for key, value in schema.items()
        if key not in ("title", "default") and (key, value) != ("additionalProperties", False)
    }
    if "const" in found:
        found["enum"] = [found.pop("const")]
    if "anyOf" in found:
        kinds = [one for one in found.pop("anyOf") if one != {"type": "null"}]
        nullable = len(kinds) < len(schema["anyOf"])
        if len(kinds) == 1:
            found = {**kinds[0], **found}
        elif all(set(one) == {"type"} for one in kinds):
            found["type"] = sorted(one["type"] for one in kinds)
        else:
            found["anyOf"] = kinds
        found |= {"nullable": True} if nullable else {}
    order = ("type", "properties", "required", "nullable", "enum", "items", "description")
    return {key: found[key] for key in sorted(found, key=lambda key: order.index(key) if key in order else 3)}


# -- calls ------------------------------------------------------------------------------------------------------------


def _typed(arguments: dict[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with texts read as JSON where the schema wants no text: some wire forms have no types."""
    properties, found = parameters.get("properties") or {}, dict(arguments)
    for key, value in arguments.items():
        wanted = properties.get(key)
        if isinstance(value, str) and isinstance(wanted, dict) and "string" not in _kinds(wanted):
            try:
                found[key] = json.loads(value)
            except (ValueError, RecursionError):
                continue
    return found


def _kinds(schema: Mapping[str, Any]) -> Sequence[str]:
    """The JSON types that a schema allows, "string" where it does not say."""
    kind = schema.get("type")
    if "enum" in schema:
        return ["string"] if any(isinstance(one, str) for one in schema["enum"]) else [str(kind)]
    return [kind] if isinstance(kind, str) else kind or ["string"]


def _step(result: Any, name: str) -> Step:
    if isinstance(result, str):
        return Step(encodable(result), 0.0, False, False, {})
    if isinstance(result, Step):
        return result._replace(observation=encodable(result.observation))
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str):
        return Step(encodable(result[0]), float(result[1]), False, False, {})
    raise TypeError(f"the tool {name} returned {type(result).__name__}: return text, text and a reward, or a Step")


def _told(error: ValidationError) -> str:
    """What is wrong with arguments, in a line."""
    parts = [f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors()[:5]]
    return "; ".join(parts)[:500] + "."


def _random_value(schema: Mapping[str, Any], rng: np.random.Generator, words: Sequence[str]) -> Any:
    if schema.get("enum"):
        return schema["enum"][int(rng.integers(len(schema["enum"])))]
    kind = next(iter(_kinds(schema)))
    if kind == "integer":
        return int(rng.integers(schema.get("minimum", 0), schema.get("maximum", 20) + 1))
    if kind == "number":
        return round(float(rng.random()) * 20, 1)
    if kind == "boolean":
        return bool(rng.integers(2))
    if kind == "array":
        inner = schema.get("items") if isinstance(schema.get("items"), dict) else {}
        return [_random_value(inner, rng, words) for _ in range(int(rng.integers(1, 3)))]
    if kind == "object":
        return {key: _random_value(one, rng, words) for key, one in (schema.get("properties") or {}).items()}
    return words[int(rng.integers(len(words)))]


def _shown_by(reset: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the method `reset`: what it returns is what `render` shows."""

    @wraps(reset)
    def showing(self: ToolEnv, *args: Any, **kwargs: Any) -> Any:
        observation, info = reset(self, *args, **kwargs)
        self._shown = observation
        return observation, info

    return showing
