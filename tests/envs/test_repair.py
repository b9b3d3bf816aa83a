"""`Repair-v0`: faults that cases see, an oracle from any state, and programs that cannot forge a result."""

from __future__ import annotations

import ast
import datetime
import json
from dataclasses import replace
from functools import cache

import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st
from ragen_envs.repair.almanac import cases, days
from ragen_envs.repair.faults import MODULES, faults, source
from ragen_envs.repair.judge import failing
from ragen_envs.sandbox import Limits
from ragen_lab.checker import QUICK, Subject, check
from sandboxed import SANDBOX

from ragen_verl import make
from ragen_verl.env.calls import called, said
from ragen_verl.errors import RecipeError

pytestmark = SANDBOX
FEW = replace(QUICK, neighbours=4, steps=4, limit=120)  # a sandbox is opened for every test of an episode
WHOLE = {module: source(module) for module in MODULES}


def judged(**changed: str) -> dict[int, tuple[str, str]]:
    return failing(WHOLE | changed, "bubblewrap", Limits(seconds=5))


@cache
def played(bugs: int = 1):
    return make("Repair-v0", bugs=bugs)


def call(env, name: str, **arguments: str) -> str:
    return env.step(called(name, **arguments)).observation


def test_the_contract_holds():
    report = check(Subject.of("Repair-v0"), FEW, skip=["processes"])
    assert report.ok, report
    with pytest.raises(ResetNeeded):
        make("Repair-v0").step("1")


def test_the_package_passes_its_cases():
    assert judged() == {}
    for day, expected in cases.CASES["days.weekday"]:
        assert datetime.date(*day).weekday() == expected == days.weekday(*day)
    for (first, last), expected in cases.CASES["days.days_between"]:
        assert (datetime.date(*last) - datetime.date(*first)).days == expected


@pytest.mark.parametrize("module", MODULES)
def test_a_fault_is_one_other_sign_that_compiles(module):
    for fault in faults(module):
        broken, right = fault.into(source(module)), source(module)
        lines = [(a, b) for a, b in zip(broken.splitlines(), right.splitlines(), strict=True) if a != b]
        assert len(lines) == 1 and lines[0][1].replace(fault.right, fault.wrong, 1) != lines[0][1]
        assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(right))


@given(seed=st.integers(0, 10_000), bugs=st.integers(1, 4), data=st.data())
@settings(max_examples=5, deadline=None)
def test_the_oracle_solves_it_from_any_state(seed, bugs, data):
    env = played(bugs)
    observation, _ = env.reset(seed=seed)
    assert env.texts != WHOLE and "cases fail" in observation
    module = data.draw(st.sampled_from(MODULES))
    for line in data.draw(st.lists(st.sampled_from(env.texts[module].splitlines(keepends=True)), max_size=3)):
        call(env, "edit", module=module, old=line, new=data.draw(st.sampled_from(["", "x\n", line * 2])))
    step = None
    for action in env.oracle():
        step = env.step(action)
    assert step.terminated and step.reward == 1 and step.info["success"] and env.oracle() == []
    assert not env.step(called("test")).info["action_is_valid"]


def test_of_a_hidden_case_only_its_function_is_named():
    env = played()
    for seed in range(5):
        shown, _ = env.reset(seed=seed)
        for number, (name, text) in env.failing.items():
            assert name in shown and (number % 2 == 0 or text not in shown)


def test_the_faults_lie_in_the_modules_that_were_asked_for():
    env = make("Repair-v0", bugs=2, modules=["sums"])
    env.reset(seed=3)
    assert {module for module in MODULES if env.texts[module] != source(module)} == {"sums"}


@pytest.mark.parametrize(
    "text",
    [
        "import os; os._exit(0)",
        "raise SystemExit",
        "while True: pass",
        "import sys; sys.exit(0)",
        "no python",
        "import os\nos.write(1, b'[0, true]\\n[[], 1]\\n[1, 1]\\n')",
        "import json, os\nfor n in range(300): os.write(1, (json.dumps([n, 'True']) + chr(10)).encode())",
        "from almanac import cases",
    ],
)
def test_a_program_cannot_forge_results(text):
    assert {name.split(".")[0] for name, _ in judged(days=text).values()} >= {"days"}


def test_an_edit_that_cannot_be_made_changes_nothing():
    env = played()
    env.reset(seed=0)
    before = env.texts
    assert "0 times" in call(env, "edit", module="days", old="nowhere", new="")
    assert "0 times" in call(env, "edit", module="days", old="", new="x")
    assert "times" in call(env, "edit", module="days", old="return", new="x")
    assert "characters" in call(env, "edit", module="days", old='"""Days', new="x" * 20_001)
    assert "no module 'cases'" in call(env, "read", module="cases")
    assert env.texts == before
    assert call(env, "read", module="days") == before["days"]


@given(text=st.text(max_size=30))
@settings(max_examples=5, deadline=None)
def test_any_text_can_be_written_and_tested(text):
    env = played()
    env.reset(seed=1)
    env.step(json.dumps({"name": "edit", "arguments": {"module": "words", "old": '"""Words', "new": f'"""{text}'}}))
    assert not call(env, "test").startswith("0")
    assert env.step(said("I give up.")).terminated


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"bugs": 0}, "1 to 4"),
        ({"bugs": True}, "1 to 4"),
        ({"modules": "days"}, "list"),
        ({"modules": []}, "list"),
        ({"modules": ["dates"]}, "days"),
        ({"sandbox": "none"}, "sandbox"),
        ({"timeout_s": 0}, "timeout_s"),
    ],
)
def test_wrong_arguments_are_refused(arguments, match):
    with pytest.raises(RecipeError, match=match):
        make("Repair-v0", **arguments)
