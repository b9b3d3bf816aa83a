"""Held-out states that training meets: counted, and results with and without them."""

from __future__ import annotations

import json

import pytest
import yaml
from paths import ROOT

from ragen_verl import make
from ragen_verl.rollout.overlap import InitialStates


def record(state: str, success: float = 0.0, excluded: bool = False) -> dict:
    metrics = {"success": success, "return": 2 * success}
    return {"excluded": excluded, "metrics": metrics, "turns": [{"state": state}, {"state": "later"}]}


HELD_OUT = [record("a", 1.0), record("b", 1.0), record("c", 0.0), record("c", 0.0, excluded=True)]


def test_results_with_and_without_states_of_training():
    met = InitialStates()
    met.add([record("a"), record("x"), {"turns": [], "excluded": True}])
    found = met.metrics(HELD_OUT, "val-env")
    assert found == {"val-env/recurring": 1.0, "val-env/unseen_success": 0.5, "val-env/unseen_return": 1.0}


def test_only_the_first_state_counts():
    met = InitialStates()
    met.add([record("z")])
    assert met.metrics([record("later", 1.0)], "val-env")["val-env/recurring"] == 0.0


def test_without_an_unseen_state_there_is_no_mean():
    met = InitialStates()
    met.add(HELD_OUT)
    assert met.metrics(HELD_OUT, "generalisation") == {"generalisation/recurring": 3.0}


def test_a_resumed_run_knows_the_steps_before_it(tmp_path):
    for step, state in ((1, "a"), (2, "b"), (3, "c")):
        (tmp_path / f"{step:06d}.jsonl").write_text(json.dumps(record(state)) + "\n")
    met = InitialStates()
    met.read(tmp_path, 2)
    assert met.metrics(HELD_OUT, "val-env")["val-env/recurring"] == 2.0
    met.read(tmp_path / "missing", 2)


def test_a_line_that_a_kill_cut_short_is_no_state(tmp_path):
    whole = json.dumps(record("a")) + "\n"
    (tmp_path / "000001.jsonl").write_text(whole + json.dumps(record("b"))[:-3])
    met = InitialStates()
    met.read(tmp_path, 2)
    assert met.metrics(HELD_OUT, "val-env")["val-env/recurring"] == 1.0


@pytest.mark.parametrize("state", ["\udc80", "é" * 9, ""])
def test_any_text_is_a_state(state):
    met = InitialStates()
    met.add([record(state)])
    assert met.metrics([record(state)], "val-env")["val-env/recurring"] == 1.0


@pytest.mark.parametrize(("recipe", "groups", "recurring"), [("frozen_lake", 480, 2), ("sokoban", 1600, 63)])
def test_counts_in_the_docs_are_those_of_the_recipes(recipe, groups, recurring):
    said = (ROOT / "docs" / "mixtures.md").read_text().replace("\n", " ")
    assert f"{groups:,}" in said and f"meet {recurring}" in said
    blocks = yaml.safe_load((ROOT / "recipes" / "nano" / f"{recipe}.yaml").read_text())["ragen"]
    env = make(blocks["val"]["envs"][0]["id"], **blocks["val"]["envs"][0].get("kwargs", {}))
    train, val = blocks["train"]["seed"], blocks["val"]["seed"]
    met = {env.reset(seed=seed)[0] for seed in range(train, train + groups)}
    assert sum(env.reset(seed=seed)[0] in met for seed in range(val, val + 256)) == recurring
