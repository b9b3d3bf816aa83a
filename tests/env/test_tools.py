from __future__ import annotations

import json
import pickle
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lock_box import LockBox
from transformers.utils import get_json_schema

from ragen_verl import RecipeError, Step, ToolEnv, tool
from ragen_verl.env.hosting.session import view
from ragen_verl.env.tools import called, said

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def begun() -> LockBox:
    env = LockBox()
    assert env.reset(seed=3)[0] == env.render()
    return env


class Kinds(ToolEnv):
    @tool
    def number(self, a: int, b: float = 0.5, c: bool = True, d: int | None = None) -> str:
        """Numbers.

        They are of
        many kinds.

        Args:
            a: An integer.
            b: A float, with
                a second line.
            c: Yes or no.
            d: Perhaps an integer.
        """
        return repr((a, b, c, d))

    @tool
    def nested(self, words: list[str], table: dict[str, int], either: int | str, any: Any) -> str:
        """Containers.

        Args:
            words: Words.
            table: Numbers by name.
            either: One of two.
            any: Anything.

        Returns:
            A text.
        """
        return repr((words, table, either, any))

    @tool
    def choice(self, one: Literal["a", "b"], count: Literal[1, 2] = 1) -> str:
        """A choice.

        Args:
            one: A letter.
            count: A number.
        """
        return one * count

    @tool
    def bare(self) -> str:
        """No arguments."""
        return "done"


@pytest.mark.parametrize("schema", Kinds().tools, ids=lambda one: one["function"]["name"])
def test_schemas_are_those_of_transformers(schema):
    theirs = get_json_schema(getattr(Kinds(), schema["function"]["name"]))
    theirs["function"].pop("return")
    assert schema == theirs


def test_a_schema_of_ones_own_is_passed_on_and_checked():
    parameters = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 2}}, "required": ["n"]}

    class Own(ToolEnv):
        @tool(parameters=parameters)
        def roll(self, n, **more):
            """Roll dice."""
            return str((n, more))

    env = Own()
    assert env.tools == [
        {"type": "function", "function": {"name": "roll", "description": "Roll dice.", "parameters": parameters}}
    ]
    assert env.step(called("roll", n="3", x=1)).observation == "(3, {'x': 1})"
    assert env.step(called("roll", n=1)).observation == "roll was not called: n: 1 is less than the minimum of 2."


def test_parameters_that_say_too_little_are_refused():
    class Silent(ToolEnv):
        @tool
        def go(self, where: str) -> str:
            """Go."""
            return where

    class Listed(ToolEnv):
        @tool
        def go(self, *places: str) -> str:
            """Go."""
            return ""

    with pytest.raises(RecipeError, match="where of the tool go needs a type hint and a line"):
        Silent().tools  # noqa: B018
    with pytest.raises(RecipeError, match="parameters have names"):
        Listed().tools  # noqa: B018


def test_arguments_are_checked_and_converted():
    env = Kinds()
    assert env.step(called("number", a=1)).observation == "(1, 0.5, True, None)"
    assert env.step(called("number", a="7", b="2", c="false", d="null")).observation == "(7, 2.0, False, None)"
    assert env.step(called("nested", words='["x"]', table='{"y": 1}', either="3", any="[4]")).observation == (
        "(['x'], {'y': 1}, '3', '[4]')"
    )


@pytest.mark.parametrize(
    ("action", "kind", "words"),
    [
        (called("look", box="black"), "arguments", "box: Input should be 'red', 'green' or 'blue'"),
        (called("look"), "arguments", "box: Field required"),
        (called("open", code="11", x=1), "arguments", "x: Extra inputs are not permitted"),
        (called("reset"), "unknown_tool", "There is no tool 'reset'; the tools are look, open."),
        (called("code"), "unknown_tool", "no tool"),
        ("look", "malformed", "This is no call"),
        ('{"name": "look"}', "malformed", "This is no call"),
        ('{"error": "Close the bracket."}', "malformed", "Close the bracket."),
        ("[" * 100_000, "malformed", "This is no call"),
    ],
)
def test_a_wrong_call_is_told_why_and_changes_nothing(action, kind, words):
    env = begun()
    step = env.step(action)
    assert words in step.observation and step.observation == env.render()
    assert step[1:4] == (0.0, False, False) and env.told == 0
    assert not any(step.info[name] for name in ("success", "action_is_valid", "action_is_effective"))
    assert step.info["call"]["error"] == kind and step.info["call"]["result"] == step.observation


def test_results_are_text_or_text_and_reward_or_a_step():
    env = begun()
    look, opened = env.oracle()
    assert env.step(look).observation == f"A note: {env.code}."
    wrong = env.step(called("open", code="1"))
    assert (wrong.observation, wrong.reward, wrong.terminated) == ("Wrong, 1 times.", -0.1, False)
    refused = env.step(called("open", code="?"))
    assert refused.info["call"]["error"] == "tool" and refused.info["action_is_valid"]
    step = env.step(opened)
    assert isinstance(step, Step) and (step.observation, step.reward, step.terminated) == ("It opens.", 1.0, True)
    assert step.info["success"] and step.info["call"]["arguments"] == {"code": env.code}


def test_a_reply_without_a_call_is_an_action_too():
    env = begun()
    assert env.step(said("hello")).observation == "You said 5 letters."
    assert env.step(said("bye")).terminated
    assert Kinds().step(said("I am done.")).terminated


def test_another_exception_is_a_failure_of_the_environment():
    class Broken(ToolEnv):
        @tool
        def go(self) -> str:
            """Go."""
            return 1 / 0

        @tool
        def count(self) -> str:
            """Count."""
            return 3

    with pytest.raises(ZeroDivisionError):
        Broken().step(called("go"))
    with pytest.raises(TypeError, match="the tool count returned int"):
        Broken().step(called("count"))


@given(
    action=st.text(max_size=60)
    | st.builds(json.dumps, JSON)
    | st.builds(
        lambda name, arguments: json.dumps({"name": name, "arguments": arguments}),
        st.sampled_from(["look", "open", "no"]),
        st.dictionaries(st.sampled_from(["box", "code", "tries", "x"]), JSON, max_size=3),
    )
)
@settings(max_examples=200, deadline=None)
def test_no_action_raises(action):
    env = begun()
    step = env.step(action)
    assert step.observation.encode() is not None and isinstance(step.info["call"]["error"], str)


def test_random_calls_fit_their_schemas():
    env, rng = begun(), np.random.default_rng(0)
    errors = [env.step(env.random_action(rng)).info["call"]["error"] for _ in range(200)]
    assert not {"arguments", "malformed", "unknown_tool"} & set(errors)
    kinds = Kinds()
    assert {kinds.step(kinds.random_action(rng)).info["call"]["error"] for _ in range(100)} == {""}


def test_an_environment_of_another_process_shows_its_tools():
    env = begun()
    shown = view(env)
    assert shown["tools"] == env.tools and shown["policy"] == env.policy and json.dumps(shown)
    twin = pickle.loads(pickle.dumps(env))
    assert twin.step(env.oracle()[0]) == env.step(env.oracle()[0])
