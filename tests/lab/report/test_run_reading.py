"""A run's folder is read as it is: unfinished, damaged, older; what is missing is said."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from ragen_lab.report.about import facts
from ragen_lab.report.overview import find, record
from ragen_lab.report.reading import read_run
from ragen_lab.report.trajectories import normalise
from small_runs import GROUPS, MEMBERS, small_run, trajectory

from ragen_verl.errors import RecipeError
from ragen_verl.runs import lock


def test_a_whole_run_is_read_without_a_note(tmp_path: Path) -> None:
    run = read_run(small_run(tmp_path / "run").path)
    assert (run.notes, run.recipe, run.step, run.state()) == ([], "a/recipe", 4, "finished")
    assert list(run.files["train"]) == [1, 2, 3, 4] and list(run.files["val"]) == [0, 2, 4]
    records = run.records("train", 3)
    assert len(records) == GROUPS * MEMBERS
    assert records[0]["turns"][0]["reasoning"] == "thought 1 of sample 0 at step 3"


def test_what_is_no_run_is_named_with_the_runs_in_it(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="There is no folder"):
        read_run(tmp_path / "missing")
    small_run(tmp_path / "one", steps=1)
    with pytest.raises(RecipeError, match=r"is no run's folder.*It holds runs: one\."):
        read_run(tmp_path)


def test_a_run_without_a_step_is_read(tmp_path: Path) -> None:
    (tmp_path / "hydra").mkdir()
    run = read_run(tmp_path)
    assert run.rows == [] and any("no step yet" in note for note in run.notes)


def test_lines_cut_short_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    file = folder.trajectories("train") / "000002.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) - 40] + b"\xff")
    with folder.metrics.open("a") as metrics:
        metrics.write('[1]\n{"no": "step"}\n{"step": 5, "train/succ')
    run = read_run(tmp_path)
    assert len(run.records("train", 2)) == GROUPS * MEMBERS - 1
    assert run.step == 4
    assert any(note.startswith("metrics.jsonl: 3 lines are no step") for note in run.notes)
    assert any("trajectories/train/000002.jsonl, line 12" in note for note in run.notes)


@pytest.mark.parametrize("name", ["config.yaml", "versions.json", "verdict.json", "summary.json"])
@pytest.mark.parametrize("content", ["{broken", "[1, 2]", "", "a: [b", "\x00"])
def test_a_damaged_file_is_noted_and_the_rest_is_read(tmp_path: Path, name: str, content: str) -> None:
    small_run(tmp_path, steps=2)
    (tmp_path / name).write_text(content)
    run = read_run(tmp_path)
    assert run.notes == [f"{name} cannot be read (damaged, or being written)."]
    assert run.step == 2 and len(run.records("val", 2)) == 6


@pytest.mark.parametrize("content", ["", "[", "[1]", "7", "hydra: {}", "hydra: {job: {config_name: '${a.b}'}}", "\x00"])
def test_a_damaged_name_of_the_recipe_is_taken_elsewhere(tmp_path: Path, content: str) -> None:
    small_run(tmp_path, steps=1)
    (tmp_path / "hydra").mkdir()
    (tmp_path / "hydra" / "hydra.yaml").write_text(content)
    (tmp_path / "hydra" / "overrides.yaml").write_text(content)
    assert read_run(tmp_path).recipe == "a/recipe"
    assert facts(read_run(tmp_path))["Recipe"]["recipe"] == "a/recipe"


def test_a_run_without_trajectories_or_metrics_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("trainer: {experiment_name: fresh}")
    run = read_run(tmp_path)
    assert (run.recipe, run.step, run.records("train", 1)) == ("fresh", 0, [])
    assert {note.split(":")[0] for note in run.notes} == {
        "versions.json is missing.",
        "metrics.jsonl has no step yet",
        "There are no trajectories",
    }


@pytest.mark.parametrize("schema", [1, 2])
def test_records_of_older_schemas_are_read(tmp_path: Path, schema: int) -> None:
    folder = small_run(tmp_path, steps=1)
    new = trajectory(1, 7, 2).record()
    old = {key: new[key] for key in new if key not in ("package", "protocol", "preamble", "started", "truncated")}
    old |= {"schema": schema, "turns": [{**turn} for turn in old["turns"]]}
    for turn in old["turns"]:
        for key in ("user", "prefix", "shown_from", "generate_seconds", "env_seconds"):
            del turn[key]
    if schema == 1:
        old["env_id"] = old.pop("env")
    (folder.trajectories("train") / "000001.jsonl").write_text(json.dumps(old))
    run = read_run(tmp_path)
    (found,) = run.records("train", 1)
    expected = normalise(new | {"preamble": None})
    for turn in expected["turns"]:
        turn |= {"user": "", "prefix": ""}
    assert (found, run.notes) == (expected, [])


def test_tokens_are_read_with_their_numbers(tmp_path: Path) -> None:
    run = read_run(small_run(tmp_path, tokens=True).path)
    record = next(one for one in run.records("train", 1) if one["rollout_index"] == 3)
    turn = record["turns"][0]
    sizes = turn["tokens"]["sizes"]
    assert sum(sizes) == len(turn["response"]) and set(sizes[:-1]) == {5}
    assert turn["tokens"]["log_probs"][:5] == [0.0, -0.5, -1.0, -1.5, 0.0]
    assert turn["advantage"] == 2.0 and set(turn["tokens"]["mask"]) == {1.0}
    assert record["preamble"] == "You are a helper.\n\nWalk to the goal."
    held_out = run.records("val", 0)[0]["turns"][0]
    assert held_out["advantage"] is None and set(held_out["tokens"]) == {"sizes", "log_probs", "mask"}


@pytest.mark.parametrize("offsets", [None, [], [0, "x"], [3, 0], {"a": 1}, [0, 10**9]])
def test_tokens_of_another_form_do_no_harm(offsets: object) -> None:
    record = trajectory(1, 1, 1).record()
    record["turns"][0]["tokens"] = {"offsets": offsets, "log_probs": [1, 2, 3], "advantages": "x", "mask": None}
    tokens = normalise(record)["turns"][0]["tokens"]
    assert tokens is None or set(tokens) == {"sizes"}


def test_a_newer_schema_is_noted(tmp_path: Path) -> None:
    folder = small_run(tmp_path, steps=1)
    folder.write_trajectories("train", 1, [{**trajectory(1, 1, 0).record(), "schema": 99, "new": 1}])
    run = read_run(tmp_path)
    assert run.records("train", 1) == []
    assert run.notes[0].startswith("trajectories/train/000001.jsonl, line 1, is left out: it has schema 99")


@pytest.mark.parametrize("bad", [{}, {"turns": 3, "seed": 1}, {"turns": [], "seed": "x"}, {"turns": [], "seed": None}])
def test_what_is_no_trajectory_is_none(bad: dict) -> None:
    assert normalise(bad) is None


def test_fields_of_other_types_do_no_harm() -> None:
    turn = {
        "state": 3,
        "response": None,
        "actions": "Left",
        "reward": "much",
        "infos": [1, {"a": {"b": 2}}],
        "turn": [],
    }
    shown = normalise(
        {"seed": 1.0, "turns": [turn, 7], "success": "yes", "return": "high", "rollout_index": [], "env": 5}
    )
    assert shown and (shown["env"], shown["seed"], shown["return"], shown["outcome"]) == ("5", 1, None, "solved")
    (only,) = shown["turns"]
    assert (only["state"], only["response"], only["actions"], only["reward"]) == ("3", "", [], None)
    assert only["infos"] == {"a": "{'b': 2}"}
    json.dumps(shown, allow_nan=False)


def test_a_run_is_failed_interrupted_or_running(tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    with lock.taken(tmp_path):
        assert read_run(tmp_path).state() == "running"
    assert read_run(tmp_path).state() == "finished"
    folder.log(5, {})  # resumed, and killed after a step
    assert read_run(tmp_path).state() == "interrupted"
    folder.summary.unlink()
    assert read_run(tmp_path).state() == "interrupted"
    folder.error.write_text("Traceback\nValueError: too long")
    run = read_run(tmp_path)
    assert (run.state(), run.cause()) == ("failed", "ValueError: too long")
    folder.error.write_text("Stopped (SIGTERM) after step 4.\n")
    assert read_run(tmp_path).state() == "interrupted"


def test_a_copy_has_the_state_of_its_run(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in reversed(sorted(folder.path.glob("*.*"))):  # in another order than they were written
        (copy / file.name).write_bytes(file.read_bytes())
        os.utime(copy / file.name, (time.time() + 60,) * 2 if file.name == "config.yaml" else None)
    assert read_run(copy).state() == read_run(folder.path).state() == "finished"


def test_a_supervised_run_is_finished_with_its_model(tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    folder.summary.unlink()
    (tmp_path / "config.yaml").rename(tmp_path / "sft.yaml")
    assert record(read_run(tmp_path), tmp_path)["state"] == "interrupted"
    folder.write_cause("ValueError: too long")
    assert record(read_run(tmp_path), tmp_path)["state"] == "failed"
    folder.error.unlink()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").touch()
    found = record(read_run(tmp_path), tmp_path)
    assert (found["state"], found["continue"]) == ("finished", None)


def test_a_supervised_run_without_a_step_is_listed(tmp_path: Path) -> None:
    small_run(tmp_path / "whole")
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "sft.yaml").write_text("trainer: {}")
    assert {run.folder.path.name: run.state() for run in find(tmp_path)} == {"whole": "finished", "sft": "interrupted"}
