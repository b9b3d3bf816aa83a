"""What a run leaves behind."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.plots import learning_curve


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.begin(OmegaConf.create({"a": 1, "b": "${a}"}), step=0)
    return folder


def held_out(success: float) -> dict[str, float]:
    return {"val-env/success": success, "val-env/return": success - 0.1, "val-env/valid": 1.0}


def test_config_is_resolved_and_versions_are_there(folder: RunFolder) -> None:
    assert OmegaConf.load(folder.path / "config.yaml").b == 1
    assert "python" in json.loads((folder.path / "versions.json").read_text())


def test_only_finite_numbers_and_text_are_logged(folder: RunFolder) -> None:
    folder.log(1, {"a": np.float32(0.5), "b": math.nan, "c": math.inf, "d": "text", "e": [1], "f": np.int64(2)})
    row = folder.rows()[0]
    assert {key: row.get(key) for key in "abcdef"} == {"a": 0.5, "b": None, "c": None, "d": "text", "e": None, "f": 2}


def test_going_on_drops_what_was_logged_after_the_checkpoint(folder: RunFolder) -> None:
    for step in range(5):
        folder.log(step, {})
    with folder.metrics.open("a") as file:
        file.write('{"step": 5, "ti')  # cut short by a kill
    folder.begin(OmegaConf.create({}), step=2)
    assert [row["step"] for row in folder.rows()] == [0, 1, 2]


def test_starting_over_keeps_nothing(folder: RunFolder) -> None:
    folder.log(0, held_out(0.2))
    folder.log(1, {})
    folder.begin(OmegaConf.create({}), step=0)
    assert folder.rows() == []


def test_summary_is_the_first_and_the_last_validation(folder: RunFolder) -> None:
    folder.log(0, held_out(0.2))
    folder.log(1, {"timing_s/step": 2.0})
    folder.log(2, {"timing_s/step": 3.0, "timing_s/testing": 1.0, **held_out(0.6)})
    summary = folder.finish(recipe="a recipe", seed=3)
    assert summary == json.loads(folder.summary.read_text())
    assert (summary["before"]["success"], summary["after"]["success"]) == (0.2, 0.6)
    assert (summary["steps"], summary["seconds"], summary["seed"], summary["recipe"]) == (2, 6.0, 3, "a recipe")


def test_summary_without_validation_says_so(folder: RunFolder) -> None:
    folder.log(1, {"timing_s/step": 2.0})
    assert folder.finish(recipe="r", seed=0)["before"] is None


def test_one_validation_is_no_comparison(folder: RunFolder) -> None:
    folder.log(0, held_out(0.2))
    summary = folder.finish(recipe="r", seed=0)
    assert summary["before"]["success"] == 0.2
    assert summary["after"] is None


def test_cause_of_a_failure_is_kept(folder: RunFolder) -> None:
    with pytest.raises(ZeroDivisionError), folder.keeps_cause():
        1 / 0  # noqa: B018
    assert "ZeroDivisionError" in folder.error.read_text()


def test_learning_curve_is_a_picture(folder: RunFolder) -> None:
    for step in range(4):
        folder.log(step, {"train/success": step / 4, **(held_out(step / 4) if step in (0, 3) else {})})
    assert learning_curve([folder], folder.curve).read_bytes().startswith(b"\x89PNG")


def test_learning_curve_of_a_run_without_validation(folder: RunFolder) -> None:
    folder.log(1, {"train/success": 0.5})
    assert learning_curve([folder], folder.curve).stat().st_size > 0
