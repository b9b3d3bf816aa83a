"""What a run did on each held-out state, from the trajectories of its evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ragen_lab.reproduce.outcomes import DamagedRun, evaluation, held_out

from ragen_verl.rollout.metrics import summarize
from ragen_verl.rollout.trajectory import StopReason, Trajectory
from ragen_verl.runs.folder import RunFolder


def record(env: str, seed: int, rollout_index: int, success: float, excluded: bool = False) -> dict[str, Any]:
    whole = Trajectory(f"{env}-v0", seed, rollout_index, stop_reason=StopReason.SOLVED, env_name=env).record()
    numbers = {"success": success, "return": success - 0.1, "valid_turn_ratio": 1.0}
    return {**whole, "excluded": excluded, "metrics": whole["metrics"] | numbers}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Two states of A with two trajectories each, one of B with one and one that failed."""
    found = RunFolder(tmp_path)
    records = [record("A", 7, 0, 1.0), record("A", 7, 1, 0.0), record("A", 5, 0, 1.0), record("A", 5, 1, 1.0),
               record("B", 9, 0, 0.0), record("B", 9, 1, 1.0, excluded=True)]  # fmt: skip
    found.write_trajectories("val", 10, records)
    found.log(10, summarize(records, "val-env"))
    return found


def test_each_state_has_the_mean_of_its_trajectories(folder: RunFolder) -> None:
    found = evaluation(folder, 10, "val-env/success")
    assert found.states == (("A", 5), ("A", 7), ("B", 9))
    assert found.means.tolist() == [1.0, 0.5, 0.0] and found.samples == (2, 2, 1)


def test_names_are_those_of_the_metrics(folder: RunFolder) -> None:
    assert evaluation(folder, 10, "val-env/A/success").mean == folder.rows()[0]["val-env/A/success"] == 0.75
    assert evaluation(folder, 10, "val-env/valid").mean == 1.0
    assert held_out("val-env/success") and held_out("generalisation/return") and not held_out("train/success")


def test_a_metric_that_no_trajectory_has_is_an_error(folder: RunFolder) -> None:
    with pytest.raises(KeyError):
        evaluation(folder, 10, "val-env/C/success")


def test_a_file_that_is_cut_short_is_found(folder: RunFolder) -> None:
    file = folder.trajectories("val") / "000010.jsonl"
    whole = file.read_text()
    for text, words in ((whole[:-20], "cut short"), (whole[: whole.rindex("{", 0, -2)], "cut short"),
                        ("".join(whole.splitlines(True)[:-1]), "5 of 6")):  # fmt: skip
        file.write_text(text)
        with pytest.raises(DamagedRun, match=words):
            evaluation(folder, 10, "val-env/success")
    file.unlink()
    with pytest.raises(DamagedRun, match="missing"):
        evaluation(folder, 10, "val-env/success")
