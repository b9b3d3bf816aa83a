"""`ragen-verl reproduce`, and the page that it makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from paths import ROOT
from protocol_runs import SEEDS, SWEEP, finish, read
from ragen_lab.cli.reproduce import _compose
from ragen_lab.reproduce.catalogue import experiments
from ragen_lab.reproduce.decisions import Decision
from ragen_lab.reproduce.judgement import judge_result
from ragen_lab.reproduce.page import page, states
from ragen_lab.reproduce.results import collect, write
from ragen_lab.reproduce.settings import compared, packed
from typer.testing import CliRunner

from ragen_verl.cli import app


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SWEEP)
    return tmp_path / "small.yaml"


def run(*args: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["reproduce", *args], env={"COLUMNS": "250", "TERM": "dumb"})
    assert found.exit_code == code, found.output + found.stderr
    return found.output + found.stderr


def test_the_page_is_that_of_the_committed_results() -> None:
    made = page(list(experiments().values()), ROOT / "benchmarks" / "results" / "reproduction")
    assert (ROOT / "docs" / "reproduction.md").read_text("utf-8") == made


@pytest.mark.parametrize(
    ("decision", "state"),
    [(Decision.CONTRADICTED, "undecided; again: contradicted"), (Decision.UNDECIDED, "undecided")],
)
def test_a_decided_follow_up_is_named_with_the_first(tmp_path: Path, decision: Decision, state: str) -> None:
    first = replace(judge_result(read(tmp_path), {"runs": []}), decision=Decision.UNDECIDED)
    follow_up = replace(first, name="again", decision=decision, protocol=replace(first.protocol, follows="small"))
    assert states([follow_up, first]) == {"again": str(decision), "small": state}


def test_all_items_are_listed_with_cost_and_state() -> None:
    lines = run("--list").splitlines()
    assert len(lines) == 1 + len(experiments())
    found = next(line for line in lines if line.startswith("ragen_figure5 "))
    assert "ragen_figure6, ragen_table1" in found and "GPU h, estimated" in found and found.rstrip().endswith("not run")


def test_a_list_elsewhere_says_where_the_outcomes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = run("--list")
    assert "not run" not in found and "The outcomes are not here" in found
    assert "benchmarks/results/reproduction" in found and "--out" in found
    there = run("--list", "--out", str(ROOT / "benchmarks/results/reproduction"))
    assert "not run" in there and "not here" not in there


def test_a_dry_run_prints_a_command_a_missing_run(file: Path, tmp_path: Path) -> None:
    lines = run(str(file), "--runs", str(tmp_path), "--dry-run").splitlines()
    assert len(lines) == 15 and all(line.startswith("ragen-verl train nano/bandit ") for line in lines)
    (line,) = run(str(file), "--runs", str(tmp_path), "--dry-run", "--seeds", "5010000", "--only", "a").splitlines()
    assert "ragen.train.seed=5010000" in line and "algorithm=starpo_s" in line


def test_a_run_of_the_committed_result_is_not_run_again(file: Path, tmp_path: Path) -> None:
    sweep = read(tmp_path)
    _, seed, folder = next(sweep.runs(tmp_path / "away", ["a"]))
    finish(folder, "a", seed, 0.5)
    result = collect(sweep, tmp_path / "away")
    settings = compared(_compose(sweep.recipe, sweep.overrides_of("a", seed, folder)))
    write({**result, "settings": packed({"a": settings})}, tmp_path / "out")
    command = (str(file), "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    lines = run(*command, "--dry-run").splitlines()
    assert len(lines) == 14 and not any(f"/a/seed{seed}" in line for line in lines)
    file.write_text(SWEEP.replace("a: [algorithm=starpo_s]", "a: [algorithm=starpo_grpo]"))
    assert len(run(*command, "--dry-run").splitlines()) == 15
    assert f"a, seed {seed}, is of other settings." in run(*command, "--report-only")


def test_committed_results_name_no_folder_of_a_machine() -> None:
    for item in (ROOT / "benchmarks" / "results" / "reproduction").glob("*.json"):
        assert str(ROOT) not in item.read_text("utf-8")
    settings = compared(_compose("nano/bandit", []))
    assert settings["actor_rollout_ref.model.path"] == "<ragen_verl>/cpu/nano_model"
    assert not any(str(ROOT) in str(value) for value in settings.values())


def test_seeds_too_near_to_others_are_refused(file: Path) -> None:
    assert "5000 apart" in run(str(file), "--seeds", f"{SEEDS[0] + 5000}", "--dry-run", code=2)
    assert "whole numbers" in run(str(file), "--seeds", "one", "--dry-run", code=2)
    assert "Name an item" in run(code=2)


def test_runs_of_other_settings_are_named_and_not_judged(file: Path, tmp_path: Path) -> None:
    sweep = read(tmp_path)
    folder = next(folder for variant, seed, folder in sweep.runs(tmp_path / "runs"))
    finish(folder, "a", SEEDS[0], 0.5)
    said = run(str(file), "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--report-only")
    assert f"a, seed {SEEDS[0]}, is of other settings." in said and "lr: 0.001 -> (none)" in said
    assert "small: NOT RUN" in said and not (tmp_path / "out").exists()


def test_nothing_starts_while_a_variant_is_wrong(file: Path, tmp_path: Path) -> None:
    file.write_text(SWEEP.replace("c: []", "c: [algorithm=starpo]"))
    assert "small, variant c: There is no algorithm=starpo" in run(str(file), "--runs", str(tmp_path / "runs"), code=2)
    assert not (tmp_path / "runs").exists()
