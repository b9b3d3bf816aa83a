"""Evaluations of scripted policies: the same episodes as training's, resumable, never mixed."""

from __future__ import annotations

import json

import pytest
from omegaconf import OmegaConf
from ragen_lab.evaluate.plan import episodes
from ragen_lab.evaluate.policies import Person, Scripted
from ragen_lab.evaluate.runner import evaluate
from ragen_lab.evaluate.summary import comparisons, markdown, results

from ragen_verl.config import RagenConfig
from ragen_verl.env import make
from ragen_verl.errors import RecipeError
from ragen_verl.training.dataset import EnvDataset

LENGTHS = (200, 600)


def block(**rollout) -> dict:
    lake = {"id": "FrozenLake-v0", "kwargs": {"success_rate": 1.0}}
    return {
        "train": {"envs": [{**lake, "groups": 2}], "seed": 10_000},
        "val": {"envs": [{**lake, "groups": 12}, {"id": "Bandit-v0", "groups": 4}], "seed": 123},
        "generalisation": {"envs": [{"id": "Sokoban-v0", "groups": 3}], "seed": 500_000},
        "run": {"dir": "unused"},
        "rollout": {"max_actions": 10, **rollout},
    }


def recipe(**rollout) -> RagenConfig:
    return RagenConfig.from_omegaconf(block(**rollout))


def played(ragen, policy, folder, samples=1, **settings):
    return evaluate(ragen, policy, episodes(ragen, samples), folder, lengths=LENGTHS, settings=settings)


def test_the_plan_is_what_training_evaluates():
    dataset = EnvDataset("env://val", None, OmegaConf.create({"ragen": block()}))
    rows = [row["extra_info"] for row in (dataset[i] for i in range(19))]
    plan = episodes(recipe())
    assert len(dataset) == len(plan) == 19
    assert [(one.split, one.env, one.env_id, one.kwargs, one.seed) for one in plan] == [
        (row["split"], row["name"], row["env_id"], row["kwargs"], row["seed"]) for row in rows
    ]


@pytest.mark.parametrize("think", [True, False])
def test_the_oracle_solves_what_can_be_solved(tmp_path, think):
    records = played(recipe(think=think), Scripted("oracle"), tmp_path)
    lake = [one for one in records if one["env"] == "FrozenLake"]
    assert len(lake) == 12 and all(one["success"] for one in lake)
    assert all(turn["format_ok"] and turn["valid"] for one in records for turn in one["turns"])


def test_chance_is_the_same_every_time_and_differs_by_sample(tmp_path):
    ragen = recipe()
    one, other = (played(ragen, Scripted("random"), tmp_path / name, samples=2) for name in "ab")
    actions = [[turn["actions"] for turn in record["turns"]] for record in one]
    assert actions == [[turn["actions"] for turn in record["turns"]] for record in other]
    assert any(actions[i] != actions[i + 1] for i in range(0, len(actions), 2))
    assert [record["seed"] for record in one[:4]] == [123, 123, 124, 124]


def test_an_evaluation_that_was_cut_off_goes_on(tmp_path):
    ragen = recipe()
    whole = played(ragen, Scripted("random"), tmp_path)
    file = tmp_path / "episodes.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:5]) + "\n" + lines[5][:40])
    seen = []
    again = evaluate(
        ragen,
        Scripted("random"),
        episodes(ragen),
        tmp_path,
        lengths=LENGTHS,
        settings={},
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[0] == (5, 19) and seen[-1] == (19, 19)
    assert [one["return"] for one in again] == [one["return"] for one in whole]


def test_episodes_that_the_engine_failed_are_played_again(tmp_path):
    ragen = recipe()
    played(ragen, Scripted("random"), tmp_path)
    file = tmp_path / "episodes.jsonl"
    first, *others = file.read_text().splitlines()
    failed = json.dumps({**json.loads(first), "stop_reason": "engine_error", "excluded": True})
    file.write_text("\n".join([failed, *others]) + "\n")
    assert not any(one["excluded"] for one in played(ragen, Scripted("random"), tmp_path))


def test_another_policy_or_setting_is_not_mixed_in(tmp_path):
    ragen = recipe()
    played(ragen, Scripted("random"), tmp_path, recipe="a")
    with pytest.raises(RecipeError, match="another policy, recipe: choose another --out"):
        played(ragen, Scripted("oracle"), tmp_path, recipe="b")


def test_a_person_plays_what_is_typed(tmp_path):
    ragen = recipe(max_turns=1)
    asked = []

    def answer(text: str) -> str:
        asked.append(text)
        return "Up"

    records = played(ragen, Person(answer), tmp_path)
    assert len(asked) == 19
    lake = make("FrozenLake-v0", success_rate=1.0)
    state, _ = lake.reset(seed=123)
    assert state in asked[0]
    assert records[0]["turns"][0]["executed"] == ["Up"]


def test_results_compare_policies_on_the_same_states(tmp_path):
    ragen = recipe()
    records = {name: played(ragen, Scripted(name), tmp_path / name, samples=2) for name in ("random", "oracle")}
    found = results(records)
    lake = found["policies"]["oracle"]["val/FrozenLake"]
    assert (lake["states"], lake["episodes"], lake["success"]["value"], lake["pass@k"]) == (12, 24, 1.0, 1.0)
    (against,) = [one for one in found["compared"] if one["environment"] == "val/FrozenLake"]
    assert against["difference"]["value"] > 0.5 and against["p_value"] < 0.05
    assert json.loads(json.dumps(found)) == found
    page = markdown(found, "title")
    assert page.count("\n| ") == 7 and all(sentence in page for sentence in comparisons(found))
