"""A checkpoint's step and its model card; what merges the weights is tested with a training."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf
from ragen_lab.convert.export import card, checkpoints, find, step_of
from saved_checkpoints import cut, save

from ragen_verl.errors import RecipeError
from ragen_verl.names import HELD_OUT_SUCCESS
from ragen_verl.runs.folder import RunFolder


def made(path: Path, model: str = "some/model", n: int = 1) -> RunFolder:
    folder = RunFolder(path)
    envs = [{"id": "Lake-v0", "groups": 2, "kwargs": {"size": 4}}]
    ragen = {"train": {"envs": envs, "seed": 100}, "val": {"envs": envs, "seed": 7}}
    rollout = {"model": {"path": model}, "rollout": {"val_kwargs": {"n": n}}}
    folder.begin(OmegaConf.create({"actor_rollout_ref": rollout, "ragen": ragen}), 0)
    for step, rate in ((0, 0.25), (2, 0.75), (4, 0.5)):
        folder.log(step, {HELD_OUT_SUCCESS: rate, "val-env/episodes": 64, "val-env/return": rate - 0.1})
        if step:
            save(folder.path / "checkpoints", step)
    shutil.copytree(folder.path / "checkpoints" / "global_step_2", folder.kept / "best")
    (folder.kept / "best" / "step.txt").write_text("2")
    return folder


def test_the_card_has_the_result_of_its_own_checkpoint(tmp_path):
    folder = made(tmp_path)
    page = card(folder, "last")
    assert "| before training | 0 | 0.250 | 0.160 to 0.368 | 0.150 |" in page
    assert "| this model | 4 | 0.500 | 0.381 to 0.619 | 0.400 |" in page
    assert "| best of the run | 2 | 0.750 |" in page
    assert "| this model | 2 | 0.750 |" in card(folder, "best") and ", step 2\n" in card(folder, "best")


def test_the_card_names_model_environments_and_versions(tmp_path):
    page = card(made(tmp_path), "4")
    head = yaml.safe_load(page.split("---")[1])
    assert head["base_model"] == "some/model" and head["pipeline_tag"] == "text-generation"
    assert '- Trained on: Lake-v0 {"size": 4}, seeds from 100' in page and "Generalisation" not in page
    for name, number in json.loads((tmp_path / "versions.json").read_text()).items():
        assert f"| {name} | {number} |" in page


def test_a_model_of_this_machine_is_named_without_its_path(tmp_path):
    page = card(made(tmp_path / "run", model=str(tmp_path / "own")), "last")
    assert "base_model" not in page and "\nown, trained" in page and str(tmp_path) not in page


def test_several_episodes_of_a_state_get_no_interval(tmp_path):
    assert "| this model | 4 | 0.500 | - | 0.400 |" in card(made(tmp_path, n=4), "last")


def test_a_damaged_run_has_a_card_all_the_same(tmp_path):
    folder = made(tmp_path)
    for name in ("config.yaml", "versions.json", "metrics.jsonl"):
        (tmp_path / name).write_text("{[")
    assert "step 4" in card(folder, "last") and "| held out |" not in card(folder, "last")


def test_checkpoints_have_names_and_steps(tmp_path):
    found = checkpoints(made(tmp_path))
    assert {name: step_of(path) for name, path in found.items()} == {"2": 2, "4": 4, "last": 4, "best": 2}
    with pytest.raises(RecipeError, match=r"has no checkpoint '3'; it has 2, 4, last, best"):
        card(RunFolder(tmp_path), "3")
    (tmp_path / "kept" / "best" / "step.txt").unlink()
    with pytest.raises(RecipeError, match="does not say which step"):
        card(RunFolder(tmp_path), "best")


def test_the_last_checkpoint_is_the_newest_whole_one(tmp_path):
    folder = made(tmp_path)
    cut(tmp_path / "checkpoints" / "global_step_4" / "actor" / "model_world_size_1_rank_0.pt")
    assert find(folder, "last").name == "global_step_2" and ", step 2\n" in card(folder, "last")
    with pytest.raises(RecipeError, match=r"model_world_size_1_rank_0\.pt is cut short.*another of 2, 4, last, best"):
        find(folder, "4")
