"""Going on with a run: what its folder says of its start, and what a new start would change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from saved_checkpoints import cut, save
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.errors import RecipeError
from ragen_verl.runs import lock
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.resume import changes, started
from ragen_verl.validation.composition import compose


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of three steps as Hydra and the trainer leave it."""
    folder = RunFolder(tmp_path / "run")
    overrides = ["trainer.save_freq=7", f"ragen.run.dir={folder.path}"]
    config = compose("nano/frozen_lake", overrides)  # Hydra leaves it as composed, interpolations and all
    hydra = folder.path / "hydra"
    hydra.mkdir(parents=True)
    about = {"job": {"config_name": "nano/frozen_lake"}, "runtime": {"config_sources": []}}
    (hydra / "hydra.yaml").write_text(OmegaConf.to_yaml({"hydra": about}))
    (hydra / "config.yaml").write_text(OmegaConf.to_yaml(config))
    (hydra / "overrides.yaml").write_text(OmegaConf.to_yaml(overrides))
    for step in range(4):
        folder.log(step, {})
    return folder


def resume(folder: RunFolder, *args: str, monkeypatch: pytest.MonkeyPatch) -> tuple[object, list]:
    calls: list = []
    monkeypatch.setattr("ragen_verl.runs.launch.train", lambda *args: calls.append(args) or 0)
    return CliRunner().invoke(app, ["resume", str(folder.path), *args], env={"COLUMNS": "40"}), calls


def test_a_run_goes_on_with_its_recipe_and_overrides(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    done, calls = resume(folder, monkeypatch=monkeypatch)
    assert done.exit_code == 0, done.output
    assert calls[0][:2] == ("nano/frozen_lake", ["trainer.save_freq=7", f"ragen.run.dir={folder.path}"])


def test_what_an_episode_can_need_is_told_before_it_goes_on(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = resume(folder, monkeypatch=monkeypatch)
    assert "An episode of FrozenLake can need" in done.stderr and "5 of 5 turns fit" in done.stderr


@pytest.mark.parametrize("recorded", [True, False], ids=["training", "starting"])
def test_a_run_that_is_alive_is_refused_by_its_process(
    recorded: bool, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not recorded:
        shutil.rmtree(folder.path / "hydra")
    with lock.taken(folder.path):
        done, calls = resume(folder, monkeypatch=monkeypatch)
    assert done.exit_code == 2 and not calls
    assert str(folder.path) in done.stderr and f"(process {os.getpid()} on " in done.stderr


def test_other_settings_are_shown_and_need_a_yes(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    done, calls = resume(folder, "trainer.save_freq=9", monkeypatch=monkeypatch)
    assert done.exit_code == 2 and not calls
    assert "trainer.save_freq: 7 -> 9" in done.stderr and "--yes" in done.stderr
    done, calls = resume(folder, "--yes", "trainer.save_freq=9", monkeypatch=monkeypatch)
    assert done.exit_code == 0 and calls[0][1] == ["trainer.save_freq=9", f"ragen.run.dir={folder.path}"]
    assert "trainer.save_freq: 7 -> 9" in done.output


def test_train_into_a_folder_with_another_run_asks_too(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragen_verl.runs.launch.train", lambda *args: 0)
    done = CliRunner().invoke(app, ["train", "nano/bandit", f"ragen.run.dir={folder.path}"])
    assert done.exit_code == 2 and "holds a run with other settings" in done.stderr


def test_to_evaluate_in_place_of_training_needs_no_yes(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    done, calls = resume(folder, "trainer.val_only=true", monkeypatch=monkeypatch)
    assert done.exit_code == 0 and "trainer.val_only=true" in calls[0][1]


def test_a_finished_run_says_how_to_train_on(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.log(30, {"val-env/success": 0.1, "val-env/return": 0.1, "val-env/valid": 1.0})
    folder.finish(recipe="r", seed=1)
    done, calls = resume(folder, monkeypatch=monkeypatch)
    assert done.exit_code == 2 and "made all its 30 steps" in done.stderr and not calls


def test_the_screen_says_where_a_damaged_run_goes_on(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    save(folder.path / "checkpoints", 1)
    cut(save(folder.path / "checkpoints", 2) / "data.pt")
    done, calls = resume(folder, monkeypatch=monkeypatch)
    assert done.exit_code == 0 and len(calls) == 1
    said = "The checkpoint of step 2 (data.pt is cut short) is damaged; going on from step 1."
    assert said in done.output.splitlines()
    shutil.rmtree(folder.path / "checkpoints" / "global_step_1")
    done, calls = resume(folder, monkeypatch=monkeypatch)
    assert done.exit_code == 2 and not calls and "No checkpoint" in done.stderr


def test_a_folder_that_is_no_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="not the folder of a run"):
        started(RunFolder(tmp_path))


def test_a_recipe_in_a_file_is_found_again(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    source = {"path": str(tmp_path), "schema": "file", "provider": "command-line"}
    about = {"job": {"config_name": "mine"}, "runtime": {"config_sources": [source]}}
    (folder.path / "hydra" / "hydra.yaml").write_text(OmegaConf.to_yaml({"hydra": about}))
    assert started(folder).recipe == str(tmp_path / "mine.yaml")


def test_changes_are_every_key_that_differs() -> None:
    before = {"a": {"b": 1, "c": [1, 2]}, "ragen": {"run": {"dir": "x"}}}
    after = {"a": {"b": 2, "c": [1]}, "d": None, "ragen": {"run": {"dir": "y"}}}
    assert changes(before, after) == [("a.b", 1, 2), ("a.c.1", 2, ...), ("d", ..., None)]


def test_what_a_start_adds_for_itself_is_no_change() -> None:
    own = {"ray_kwargs": {"ray_init": {"runtime_env": {"env_vars": {"RAGEN_VERL": "1", "RAGEN_VERL_PLUGINS": "a.py"}}}}}
    assert changes({**own, "seed": 1}, {"seed": 2}) == [("seed", 1, 2)]
