"""`ToolWorld-v0` and `Lockbox-v0`: the contract, the oracle under every knob, and what wrong calls do."""

from __future__ import annotations

import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_envs.lockbox import Lockbox
from ragen_envs.tool_world import ToolWorld
from ragen_lab.checker import QUICK, Subject, check

from ragen_verl import make
from ragen_verl.env.calls import called, meant, said
from ragen_verl.errors import RecipeError


def solve(env, seed: int) -> list[str]:
    """Follow the oracle, which plans anew before every action; the actions taken."""
    env.reset(seed=seed)
    taken = []
    for _ in range(env.max_actions):
        taken.append(env.oracle()[0])
        step = env.step(taken[-1])
        assert step.info["action_is_valid"] and not step.info["call"]["error"]
        if step.terminated:
            assert step.info["success"]
            return taken
    raise AssertionError("not solved")


@pytest.mark.parametrize("id", ["ToolWorld-v0", "Lockbox-v0"])
def test_the_contract_holds(id):
    report = check(Subject.of(id), QUICK, skip=["processes"])
    assert report.ok, report
    with pytest.raises(ResetNeeded):
        make(id).step("1")


@given(
    seed=st.integers(0, 10_000),
    depth=st.integers(1, 5),
    rows=st.integers(2, 12),
    distractors=st.integers(0, 8),
    missing=st.sampled_from([0.0, 0.5, 1.0]),
    unfitting=st.sampled_from([0.0, 0.5, 1.0]),
    human=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_oracle_solves_every_world(seed, depth, rows, distractors, missing, unfitting, human):
    env = ToolWorld(depth, rows, distractors, missing, unfitting, human)
    taken = solve(env, seed)
    asked = sum("message" in meant(action) or "ask_human" in action for action in taken)
    assert asked == int(env.asks) and (env.right == "unknown" or len(taken) <= depth + 1 + asked)
    assert len(env.tools) == depth + distractors + 1 - (env.right == "unknown") + human


def test_a_world_depends_on_its_seed_alone():
    one, other = ToolWorld(), ToolWorld()
    assert [one.reset(seed=1), one.instruction, one.tools] == [other.reset(seed=1), other.instruction, other.tools]
    other.reset(seed=2)
    assert one.instruction != other.instruction


def test_wrong_calls_are_told_and_the_user_answers():
    env = ToolWorld(missing=1.0)
    env.reset(seed=0)
    assert env.subject not in env.instruction
    assert env.step(called(env.order[0], nobody="x")).info["call"]["error"] == "arguments"
    assert env.step(called(env.chain[0], person="Nobody")).info["call"]["error"] == "tool"
    assert env.step(said("Who?")).observation == f"I mean {env.subject}."
    assert not env.step(called("answer", name="?")).info["success"]
    plain = ToolWorld()
    plain.reset(seed=0)
    assert plain.step(said("Who?")).terminated


def test_ask_human_is_answered_by_the_script_or_a_person():
    env, question = ToolWorld(missing=1.0, human=True), called("ask_human", question="Who?")
    env.reset(seed=0)
    assert env.step(question).observation == f"I mean {env.subject}."
    env.person = lambda asked: f"You ask: {asked}"
    assert env.step(question).observation == "You ask: Who?"
    assert env.step(called("ask_human")).info["call"]["error"] == "arguments"
    assert env.step(said("Who?")).terminated
    known = ToolWorld(human=True)
    known.reset(seed=0)
    assert known.step(question).observation == "I do not know."


@pytest.mark.parametrize("kwargs", [{"depth": 6}, {"rows": 1}, {"missing": 2}])
def test_values_outside_their_range_are_refused(kwargs):
    with pytest.raises(RecipeError, match=f"{next(iter(kwargs))} is"):
        ToolWorld(**kwargs)
    with pytest.raises(RecipeError, match="boxes is 9"):
        Lockbox(boxes=9)
