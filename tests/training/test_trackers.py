"""verl's own trackers, read back with tensorboard's and wandb's readers: in the run's folder, under the same names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trainers import trainer_of
from verl.utils.tracking import Tracking, ValidationGenerationsLogger
from wandb_file import history, table

from ragen_verl.rollout.trajectory import RECORD, StopReason, Trajectory, Turn
from ragen_verl.runs.folder import RunFolder
from ragen_verl.training.trackers import FOLDERS, samples, write_inside

VARIABLES = (*FOLDERS, "VERL_FILE_LOGGER_PATH", "VERL_FILE_LOGGER_ROOT")
METRICS = {"train/success": 0.25, "train/FrozenLake/pass@4": 1.0, "val-env/FrozenLake/success": 0.5, "echo/shared": 0.1}


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable is set, and none stays."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")


def record(env: str = "Lake", seed: int = 1, rollout_index: int = 0, **fields) -> dict:
    turn = Turn(
        "start", [1], [2], text="go</think><answer>Up</answer>", user="Turn 1", prefill="<think>", reward=1.0,
        observation="there",
    )  # fmt: skip
    texts = {"system": "Be good.", "task_prompt": f"The {env}."}
    values = {"turns": [turn], "stop_reason": StopReason.SOLVED} | texts | fields
    return Trajectory(f"{env}-v0", seed, rollout_index, env_name=env, **values).record()


def evaluated(folder: RunFolder, backends: list[str], steps: range, shown: int) -> None:
    """The trainer's own validation metrics, on what verl hands over, with trackers that verl made."""
    shape = ("ragen.train.envs=[{id: FrozenLake-v0, groups: 4}]", "ragen.val.envs=[{id: FrozenLake-v0, groups: 4}]")
    trainer = trainer_of(folder.path, *shape, "ragen.train.seed=10", "ragen.val.seed=3")
    trainer.config.trainer.log_val_generations, trainer.config.trainer.logger = shown, backends
    tracking = Tracking("a project", "a run", backends, config={"trainer": {}})
    trainer.validation_generations_logger = ValidationGenerationsLogger("a project", "a run")
    failed = {"stop_reason": StopReason.ENV_ERROR, "turns": [], "error": "no <b>markup</b>"}
    for step in steps:
        records = [record("Shop", 3), record("Lake", 4), record("Lake", 5, **failed)]
        trainer.global_steps = step
        trainer._maybe_log_val_generations(["one turn"] * 3, ["of many"] * 3, [0.0] * 3)
        infos = {"reward": [0.0] * 3, RECORD: [json.dumps(one) for one in records]}
        trainer._val_metrics_update(["x"] * 3, ["a", "b", "c"], infos, [1, 1, 0], expected_acc_counts={})
        tracking.log({**METRICS, "step": step}, step)
    tracking.finish()
    if hasattr(trainer.validation_generations_logger, "writer"):
        trainer.validation_generations_logger.writer.close()


def test_file_and_tensorboard_have_the_same_names_of_metrics(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    write_inside(folder.path, 0, ["console", "file", "tensorboard"])
    evaluated(folder, ["console", "file", "tensorboard"], range(3), 2)
    rows = [json.loads(line) for line in (folder.path / "file" / "000000.jsonl").read_text().splitlines()]
    assert [(row["step"], row["data"]["train/success"]) for row in rows] == [(0, 0.25), (1, 0.25), (2, 0.25)]
    events = EventAccumulator(str(folder.path / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == set(rows[0]["data"]) == {*METRICS, "step"}
    for name, value in METRICS.items():
        found = [(one.step, one.value) for one in events.Scalars(name)]
        assert found == [(step, pytest.approx(value)) for step in range(3)]


def test_tensorboard_shows_sampled_trajectories(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    write_inside(folder.path, 0, ["tensorboard"])
    evaluated(folder, ["tensorboard"], range(2), 2)
    events = EventAccumulator(str(folder.path / "tensorboard"), size_guidance={"tensors": 0}).Reload()
    shown = [one.tensor_proto.string_val[0].decode() for one in events.Tensors("val/generations/text_summary")]
    assert [one.count("### Sample") for one in shown] == [2, 2]
    assert "Be good.\n\nThe Lake.\n\nTurn 1" in shown[0] and "<think>go</think><answer>Up</answer>" in shown[0]
    assert "one turn" not in shown[0]


@pytest.mark.slow
def test_wandb_offline_has_the_same_names_and_a_table(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    write_inside(folder.path, 0, ["wandb"])
    evaluated(folder, ["wandb"], range(2), 3)
    rows = history(folder.path)
    for step in range(2):
        merged = {key: value for row in rows if row["_step"] == step for key, value in row.items()}
        assert {name: merged[name] for name in METRICS} == METRICS
    found = table(folder.path, rows)
    assert [one[0] for one in found] == [0, 1] and {len(one) for one in found} == {1 + 3 * 3}
    assert found[0][1].startswith("Be good.\n\nThe Lake.") and found[0][3] == 1.0
    assert found[0][5] == "environment_error: no <b>markup</b>"


def test_a_place_that_the_user_chose_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBOARD_DIR", "/mine")
    monkeypatch.setenv("VERL_FILE_LOGGER_ROOT", "/elsewhere")
    write_inside(tmp_path, 0, ["file"])
    assert os.environ["TENSORBOARD_DIR"] == "/mine" and os.environ["WANDB_DIR"] == str(tmp_path)
    assert "VERL_FILE_LOGGER_PATH" not in os.environ and not (tmp_path / "file").exists()


def test_a_run_without_the_file_tracker_has_no_folder_for_it(tmp_path: Path) -> None:
    write_inside(tmp_path / "new", 0, ["console"])
    assert list((tmp_path / "new").iterdir()) == [] and "VERL_FILE_LOGGER_PATH" not in os.environ


def test_a_start_does_not_write_over_the_file_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for step in (0, 0, 20, 0):
        monkeypatch.delenv("VERL_FILE_LOGGER_PATH", raising=False)
        write_inside(tmp_path, step, ["file"])
        Tracking("p", "r", ["file"]).log({"a": step}, step)
        names.append(Path(os.environ["VERL_FILE_LOGGER_PATH"]).name)
    assert names == ["000000.jsonl", "000000-1.jsonl", "000020.jsonl", "000000-2.jsonl"]
    assert len(list((tmp_path / "file").iterdir())) == 4


def shown(records: list[dict], most: int) -> list[str]:
    return [first.rpartition("\n\n")[0] for first, _, _ in samples(records, most)]


@pytest.mark.parametrize("order", [list, reversed])
def test_samples_are_the_same_states_of_all_environments(order: Callable) -> None:
    records = [record(env, seed) for env in ("B", "A") for seed in range(4)]
    assert shown(list(order(records)), 4) == ["Be good.\n\nThe A."] * 2 + ["Be good.\n\nThe B."] * 2
    assert len(samples(records, 99)) == 8 and samples([], 5) == [] and samples(records, 0) == []


def test_a_sample_is_told_from_beginning_to_end() -> None:
    ((first, told, score),) = samples([record()], 1)
    assert first == "Be good.\n\nThe Lake.\n\nTurn 1"
    assert told == "<think>go</think><answer>Up</answer>\n-> there\nreward 1\n\nsolved" and score == 1.0
