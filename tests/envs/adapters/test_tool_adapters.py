"""Other people's tools: servers of the Model Context Protocol, and classes in the form of TRL."""

from __future__ import annotations

import copy
import json
import pickle
import sys

import pytest
from paths import ROOT

from ragen_verl import make
from ragen_verl.env import registry
from ragen_verl.env.tools import called, said
from ragen_verl.errors import BadEnvKwargs, RecipeError

BOXES = f"mcp:{sys.executable} {ROOT}/tests/helpers/mcp_boxes.py"
ALLOWED = ["look", "open_box"]


@pytest.fixture(scope="module")
def served():
    pytest.importorskip("mcp")
    env = make(BOXES, allow=ALLOWED, begin="begin", score="score", task="Open the box.")
    yield env
    env.close()


def test_tools_of_a_server_are_called_and_scored(served) -> None:
    assert served.reset(seed=13)[0] == "Open the box.\n\nA box is closed."
    assert [one["function"]["name"] for one in served.tools] == ALLOWED
    assert served.tools[1]["function"]["parameters"]["properties"]["code"]["type"] == "integer"
    assert served.step(called("look")).observation == "The code is 3."
    assert served.step(called("open_box", code=3)).observation == "It opens."
    step = served.step(said("Done."))
    assert step.terminated and step.reward == 1 and step.info["success"]
    assert served.step(called("look"))[1:3] == (0.0, True)
    served.reset(seed=13)
    assert served.step(said("Done.")).reward == 0


def test_what_is_not_allowed_or_wrong_is_answered(served) -> None:
    served.reset(seed=1)
    for name in ("score", "begin", "nope"):
        step = served.step(called(name))
        assert "no tool" in step.observation and not step.info["action_is_valid"] and not step.terminated
    step = served.step(called("open_box", code="x"))
    assert "code" in step.observation and step.info["call"]["error"] == "tool"


def test_a_copy_connects_anew_and_replays(served) -> None:
    served.reset(seed=4)
    served.step(called("open_box", code=4))
    for other in (pickle.loads(pickle.dumps(served)), copy.deepcopy(served)):
        assert other.step(said("Done.")).reward == 1
        other.close()
    assert served.step(said("Done.")).reward == 1


def test_a_server_that_is_not_there_is_an_error_in_words() -> None:
    pytest.importorskip("mcp")
    for kwargs in ({"allow": []}, {"allow": "look"}, {"allow": ["score"], "score": "score"}):
        with pytest.raises(BadEnvKwargs, match="allow"):
            make(BOXES, **kwargs)
    with pytest.raises(RuntimeError, match="no-such-program"):
        make("mcp:no-such-program", allow=["x"]).reset(seed=0)
    with pytest.raises(RecipeError, match="no tool 'peek'"):
        make(BOXES, allow=["peek"]).reset(seed=0)


def test_methods_of_a_class_are_tools_and_its_reward_counts() -> None:
    env = make("trl:trl_boxes:Box")
    assert env.reset(seed=0)[0] == "A box is closed."
    assert [one["function"]["name"] for one in env.tools] == ["look", "open"] and env.tasks is None
    assert "ValueError: a code is 0 or more" in env.step(called("open", code=-1)).observation
    assert "was not called" in env.step(called("open", code="x")).observation
    assert "no tool" in env.step(called("_hidden")).observation
    assert not env.step(called("open", code=1)).terminated
    step = env.step(called("open", code=7))
    assert step.terminated and step.reward == 1 and step.info["success"] and step.observation == "It opens."
    env.reset(seed=0)
    assert env.step(said("I give up.")).reward == 0


def test_rows_are_tasks_and_a_function_gives_the_reward(tmp_path) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"Task {code}"}], "code": code} for code in (2, 5)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    env = make("trl:trl_boxes:Box", rows=str(tmp_path / "rows.jsonl"), reward="trl_boxes:half", success_return=0.75)
    assert env.tasks == 2 and env.task_key(0) != env.task_key(1)
    assert env.reset(seed=3)[0] == "Task 5\n\nA box is closed."
    other = pickle.loads(pickle.dumps(make("trl:trl_boxes:Box", rows=str(tmp_path / "rows.jsonl"))))
    assert other.reset(seed=3)[0] == env.render()
    step = env.step(called("open", code=5))
    assert step.reward == 0.75 and step.info["success"]
    env.reset(seed=0, options={"task": 1})
    assert env.step(said("?")).reward == 0.25


def test_a_seed_gives_the_same_draws_of_global_generators() -> None:
    env = make("trl:trl_boxes:Box")
    noises = []
    for seed in (0, 0, 1):
        env.reset(seed=seed)
        noises.append(env.step(called("look")).observation)
    assert noises[0] == noises[1] != noises[2]


def test_classes_that_cannot_be_tools_are_refused() -> None:
    for name, words in (
        ("trl_boxes:Untyped", "type hint"),
        ("trl_boxes:Nothing", "no public methods"),
        ("trl_boxes:None_", "imported"),
        ("no_such_module_x:Y", "imported"),
        ("trl_boxes", "module:attribute"),
    ):
        with pytest.raises(RecipeError, match=words):
            make(f"trl:{name}")
    assert {"mcp", "trl"} <= set(registry.adapters())
