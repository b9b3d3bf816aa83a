"""`ragen-verl diagnose`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from traces import healthy
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.rollout.trajectory import Trajectory, Turn
from ragen_verl.runs.folder import RunFolder


def run(*args: str):
    return CliRunner().invoke(app, ["diagnose", *args], env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.begin(OmegaConf.create({}), step=0)
    return folder


def test_a_healthy_run_is_called_healthy(folder: RunFolder) -> None:
    for line in healthy(0, 40):
        folder.log(line["step"], line)
    result = run(str(folder.path))
    assert result.exit_code == 0, result.output
    assert "healthy after step 40" in result.output
    assert "actor/entropy" in result.output


def test_a_failed_run_gets_cause_advice_and_exit_code_0(folder: RunFolder) -> None:
    for line in healthy(0, 60):
        if line["step"] > 30:
            line["actor/grad_norm"] *= 1e4
        folder.log(line["step"], line)
    result = run(str(folder.path))
    assert result.exit_code == 0
    assert "primary cause gradient_spike since step 3" in result.output
    assert "what to change" in result.output
    record = json.loads(run(str(folder.path), "--json").output)
    assert (record["status"], record["primary"]) == ("warning", "gradient_spike")


def test_missing_indicators_are_read_from_the_trajectories(folder: RunFolder) -> None:
    for step in range(1, 41):
        words = "one two three four five six seven eight" if step < 20 else ""
        records = []
        for seed in range(4):
            turn = Turn(state="", prompt_ids=[1], response_ids=[1], text=words, think=words, format_ok=True)
            records.append(Trajectory("Sokoban", seed, 0, turns=[turn]).record())
        folder.write_trajectories("train", step, records)
        folder.log(step, {"train/success": 0.3 if step < 20 else 0.0})
    record = json.loads(run(str(folder.path), "--json").output)
    assert record["primary"] == "length_collapse"


def test_a_line_cut_short_is_skipped(folder: RunFolder) -> None:
    folder.log(1, {"train/success": 0.5})
    with folder.metrics.open("a") as file:
        file.write('{"step": 2, "train/succ')
    assert json.loads(run(str(folder.path), "--json").output)["step"] == 1


def test_what_is_no_run_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        result = run(str(path))
        assert result.exit_code == 2
        assert "has no metrics.jsonl" in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
    (tmp_path / "metrics.jsonl").write_text("[1]\nnothing\n")
    assert "no line with a step" in run(str(tmp_path)).stderr
