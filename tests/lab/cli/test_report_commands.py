"""`ragen-verl report`, `watch` and `show`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from ragen_lab.report.trajectories import Wanted, normalise
from small_runs import small_evaluation, small_run, trajectory
from typer.testing import CliRunner

from ragen_verl.cli import app


def run(*args: object):
    return CliRunner().invoke(app, [str(one) for one in args], env={"COLUMNS": "200", "TERM": "dumb"})


def test_the_report_is_written_into_the_runs_folder(tmp_path: Path) -> None:
    folder = small_run(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    result = run("report", tmp_path)
    assert result.exit_code == 0, result.output
    assert f"Written to {folder.path / 'report.html'}" in result.output
    assert (tmp_path / "report.html").read_bytes().startswith(b"<!doctype html>")
    assert {file: file.read_bytes() for file in before} == before


def test_a_report_of_several_runs_goes_where_it_is_sent(tmp_path: Path) -> None:
    folders = [small_run(tmp_path / name, steps=1).path for name in ("a", "b")]
    assert run("report", *folders, "--out", tmp_path / "new" / "both.html").exit_code == 0
    assert (tmp_path / "new" / "both.html").is_file()


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    folder = small_run(tmp_path, steps=1)
    with (folder.trajectories("train") / "000001.jsonl").open("a") as file:
        file.write('{"turns": [')
    told = "trajectories/train/000001.jsonl, line 13, is left out: it is cut short."
    assert told in run("report", tmp_path).output
    assert told in run("show", tmp_path).output


@pytest.mark.parametrize("command", ["report", "watch", "show"])
def test_what_is_no_run_is_one_sentence_and_exit_code_2(tmp_path: Path, command: str) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        result = run(command, path)
        assert result.exit_code == 2 and len(result.stderr.strip().splitlines()) == 1
        assert "name the folder of a run" in result.stderr


def test_watching_a_finished_run_prints_its_steps_and_ends(tmp_path: Path) -> None:
    small_run(tmp_path, steps=3)
    result = run("watch", tmp_path)
    assert result.exit_code == 0
    assert [line.split(":")[0] for line in result.output.splitlines()] == [
        "step 0/8",
        "step 1/8",
        "step 2/8",
        "step 3/8",
    ]


def test_watching_can_serve_the_page_until_ctrl_c(tmp_path: Path) -> None:
    small_run(tmp_path, steps=1)
    command = [sys.executable, "-m", "ragen_verl", "watch", str(tmp_path), "--serve", "--port", "0"]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        lines = iter(process.stdout.readline, "")
        url = next(lines).strip()
        assert next(lines).startswith("step 0/8")
        with urlopen(url) as answer:
            assert answer.read().startswith(b"<!doctype html>")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_show_prints_the_failed_episodes_of_a_step(tmp_path: Path) -> None:
    small_run(tmp_path)
    result = run("show", tmp_path, "--step", 3, "--failed", "--limit", 2)
    assert result.output.count("turn_budget") == 2 and "solved" not in result.output
    assert "8 of 12 trajectories of train step 3 are like this; 2 shown, --limit shows more." in result.output


def test_show_as_json_prints_all_that_match(tmp_path: Path) -> None:
    small_run(tmp_path)
    result = run("show", tmp_path, "--seed", 111, "--json")
    records = [json.loads(line) for line in result.output.splitlines()]
    assert [one["rollout_index"] for one in records] == [0, 1, 2, 3]


def test_show_names_what_there_is(tmp_path: Path) -> None:
    small_run(tmp_path)
    assert "it has the steps 1, 2, 3, 4" in run("show", tmp_path, "--step", 9).stderr
    assert "did you mean val?" in run("show", tmp_path, "--split", "vall").stderr
    assert "did you mean solved?" in run("show", tmp_path, "--outcome", "solvd").stderr
    assert "it has train, val" in run("show", tmp_path, "--split", "generalisation").stderr


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (Wanted(), True),
        (Wanted(outcome="failed"), True),
        (Wanted(outcome="solved"), False),
        (Wanted(env="Lake-v0", stop_reason="turn_budget", seed=1, rollout_index=1), True),
        (Wanted(env="Lake"), False),
        (Wanted(rollout_index=0), False),
        (Wanted(search="SAMPLE 1 at"), True),
        (Wanted(search="sample 2 at"), False),
        (Wanted(search="state 3 of"), True),
    ],
)
def test_filters(wanted: Wanted, matches: bool) -> None:
    assert wanted.matches(normalise(trajectory(2, 1, 1).record())) is matches


def test_policies_of_an_evaluation_stand_side_by_side(tmp_path: Path) -> None:
    small_evaluation(tmp_path)
    told = run("show", tmp_path, "--seed", 2)
    assert told.exit_code == 0, told.output
    (both,) = [line for line in told.output.splitlines() if "first val, seed 2" in line]
    assert "second val, seed 2" in both and "2 of 8 trajectories of val" in told.output
    alone = run("show", tmp_path, "--policy", "second", "--seed", 2).output
    assert "I am the second" in alone and "I am the first" not in alone
    rows = [json.loads(line) for line in run("show", tmp_path, "--json").output.splitlines()]
    assert [(one["policy"], one["seed"]) for one in rows][:2] == [("first", 0), ("first", 1)]
    assert "did you mean second?" in run("show", tmp_path, "--policy", "secnd").stderr


def test_an_evaluation_has_a_page(tmp_path: Path) -> None:
    small_evaluation(tmp_path)
    assert run("report", tmp_path).exit_code == 0 and (tmp_path / "report.html").is_file()


def test_notes_alone_leave_a_run_healthy(tmp_path: Path) -> None:
    folder = small_run(tmp_path, steps=2)
    note = {"step": 1, "cause": "no_valid_turns", "evidence": {"level": "note"}}
    folder.verdict.write_text(json.dumps({"status": "note", "findings": [note]}))
    assert "healthy, one note" in run("runs", "list", tmp_path).output
    assert run("report", tmp_path).exit_code == 0
    assert '<span class="badge note">healthy, one note</span>' in (tmp_path / "report.html").read_text()
