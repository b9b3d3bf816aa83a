"""Runs in a list, and two of them side by side."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from ragen_lab.report.overview import differences, find, record
from ragen_lab.report.reading import read_run
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.errors import RecipeError
from ragen_verl.names import HELD_OUT_SUCCESS
from ragen_verl.runs import lock
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.resume import history, note_changes

EPISODES = {"val-env/episodes": 64.0, "val-env/return": 0.1}


def made(path: Path, *rates: float, lr: float = 1e-3, steps: int = 8, finish: bool = True, **settings) -> RunFolder:
    folder = RunFolder(path)
    trainer = {"total_training_steps": steps, "default_local_dir": f"{path}/checkpoints"}
    block = {"actor_rollout_ref": {"actor": {"optim": {"lr": lr}}}, "ragen": {"run": {"dir": str(path)}, **settings}}
    folder.begin(OmegaConf.create({"trainer": trainer, **block}), 0)
    for number, rate in enumerate(rates):
        folder.log(4 * number, {HELD_OUT_SUCCESS: rate, "timing_s/step": 2.0, **EPISODES})
    if finish:
        folder.finish(recipe="nano/lake", seed=1)
    return folder


def run(*args):
    return CliRunner().invoke(app, ["runs", *map(str, args)], env={"COLUMNS": "240", "TERM": "dumb"})


@pytest.fixture
def runs(tmp_path) -> Iterator[Path]:
    """A finished run, a failed one, one that was stopped, one that is silent, and one that goes on."""
    made(tmp_path / "a" / "done", 0.25, 0.75, 0.5)
    made(tmp_path / "a" / "broken", 0.25, finish=False).error.write_text("Traceback ...\nValueError: too bad")
    made(tmp_path / "stopped", 0.25, 0.5, finish=False).error.write_text("Stopped (SIGTERM) after step 4.\n")
    made(tmp_path / "with space", 0.25, finish=False)
    made(tmp_path / "silent", 0.25, finish=False)
    (tmp_path / "eval").mkdir()
    with lock.taken(tmp_path / "with space"):
        yield tmp_path


def test_every_run_has_its_state_and_its_command(runs):
    found = {one["run"]: one for one in (record(run, runs) for run in find(runs))}
    assert {name: one["state"] for name, one in found.items()} == {
        "a/done": "finished",
        "a/broken": "failed",
        "stopped": "interrupted",
        "silent": "interrupted",
        "with space": "running",
    }
    assert found["a/broken"]["cause"] == "ValueError: too bad"
    for name, one in found.items():
        goes_on = one["state"] in ("failed", "interrupted")
        assert (one["continue"] or "").endswith(f"resume {runs / name}" if goes_on else ""), name


def test_results_are_the_best_and_the_last_with_their_intervals(runs):
    one = record(read_run(runs / "a" / "done"), runs)
    assert (one["step"], one["steps"], one["recipe"]) == (8, 8, "nano/lake")
    best, last = one["held_out"]["best"], one["held_out"]["after"]
    assert (best["step"], best["success"], last["step"], last["success"]) == (4, 0.75, 8, 0.5)
    assert best["low"] < 0.75 < best["high"]


def test_the_newest_run_comes_first(tmp_path):
    for age, name in enumerate("abc"):
        folder = made(tmp_path / name, 0.5)
        os.utime(folder.path / "config.yaml", (time.time() - 100 * age,) * 2)
    assert [one.name for one in find(tmp_path)] == ["a", "b", "c"]


def test_a_runs_own_folder_is_a_list_of_one(runs):
    (one,) = find(runs / "stopped")
    assert record(one, runs / "stopped")["run"] == "stopped"


def test_a_damaged_run_is_listed_all_the_same(runs):
    (runs / "a" / "done" / "config.yaml").write_text("[")
    (runs / "a" / "done" / "summary.json").write_text("{")
    told = run("list", runs)
    assert told.exit_code == 0 and "a/done" in told.output


def test_the_list_prints_commands_that_can_be_copied(runs):
    told = run("list", runs)
    assert told.exit_code == 0, told.output
    assert f"resume {runs / 'stopped'}\n" in told.output and "75.0 % (6" in told.output
    assert {one["run"] for one in json.loads(run("list", runs, "--json").output)} >= {"a/done", "silent"}


def test_a_folder_without_runs_is_one_sentence(tmp_path):
    with pytest.raises(RecipeError, match="There is no run in"):
        find(tmp_path)
    assert run("list", tmp_path / "nothing").exit_code == 2


def test_only_what_differs_is_compared(tmp_path):
    one = made(tmp_path / "one", 0.25, 0.5, lr=1e-3)
    other = made(tmp_path / "other", 0.25, 0.75, lr=5e-4, filter={"value": 0.5})
    versions = json.loads((other.path / "versions.json").read_text())
    (other.path / "versions.json").write_text(json.dumps({**versions, "verl": "0.0.1"}))
    found = differences(read_run(one.path), read_run(other.path))
    assert found["settings: actor_rollout_ref.actor"] == [("actor_rollout_ref.actor.optim.lr", "0.001", "0.0005")]
    assert found["settings: ragen.filter"] == [("ragen.filter.value", "(not there)", "0.5")]
    assert [row[0] for row in found["versions"]] == ["verl"] and found["versions"][0][2] == "0.0.1"
    results = {name: row for name, *row in found["results"]}
    assert [value[:5] for value in results["held-out success after"]] == ["50.0 ", "75.0 "]
    assert set(found) == {"settings: actor_rollout_ref.actor", "settings: ragen.filter", "versions", "results"}


def test_equal_runs_say_so(tmp_path):
    one, other = (made(tmp_path / name, 0.25, 0.5) for name in ("one", "other"))
    told = run("compare", one.path, other.path)
    assert (
        told.exit_code == 0 and "The settings are the same." in told.output and "versions are the same" in told.output
    )
    assert json.loads(run("compare", one.path, other.path, "--json").output) == {}
    assert run("compare", one.path, tmp_path / "no").exit_code == 2


def test_a_setting_that_was_changed_at_a_resume_has_its_steps(tmp_path):
    one, other = made(tmp_path / "one", 0.5, lr=1e-3), made(tmp_path / "other", 0.5, lr=1e-3)
    key = "actor_rollout_ref.actor.optim.lr"
    for step, lr in ((6, 5e-4), (9, 2e-4)):
        config = OmegaConf.load(one.path / "config.yaml")
        OmegaConf.update(config, key, lr)
        note_changes(one, OmegaConf.to_container(config), step)
        OmegaConf.save(config, one.path / "config.yaml")
    assert history(one) == {key: [(1, 1e-3), (7, 5e-4), (10, 2e-4)]}
    found = differences(read_run(one.path), read_run(other.path))
    assert found["settings changed at a resume"] == [
        (key, "0.001 from step 1, 0.0005 from step 7, 0.0002 from step 10", "-")
    ]
    one.begin(OmegaConf.create({}), 0)  # anew
    assert history(one) == {}
