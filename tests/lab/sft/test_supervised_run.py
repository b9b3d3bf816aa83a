"""The command around a supervised training: lines, metrics, the cause of a failure; a stand-in takes verl's place."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from ragen_lab.report.reading import read_run
from ragen_lab.sft import run as supervised
from refusals import refused
from rich.console import Console

from ragen_verl.runs.folder import RunFolder

# writes what verl's tracker writes, the last line in two pieces
STAND_IN = """
import json, os, sys, time
from pathlib import Path
with open(os.environ["VERL_FILE_LOGGER_PATH"], "w", buffering=1) as file:
    for step in (1, 2):
        line = json.dumps({{"step": step, "data": {{"train/loss": 1 / step, "train/lr": 0.001}}}})
        file.write(line[:9])
        file.flush()
        file.write(line[9:] + "\\n")
Path({checkpoint!r}).mkdir(parents=True)
{then}
"""

# once both steps have been read, the command gets a signal
STOPS = """
rows = Path(os.environ["VERL_FILE_LOGGER_PATH"]).with_name("metrics.jsonl")
while not rows.exists() or rows.read_text().count("\\n") < 2:
    time.sleep(0.05)
os.kill(os.getppid(), 15)
time.sleep(60)
"""


def run(folder: Path, then: str, monkeypatch: pytest.MonkeyPatch) -> str:
    checkpoint = folder / "checkpoints" / "global_step_2"
    code = STAND_IN.format(checkpoint=str(checkpoint), then=then)
    monkeypatch.setattr(supervised, "command", lambda *_: [sys.executable, "-c", code])
    monkeypatch.setattr(supervised, "merged", lambda shards, out: shards.rename(out))
    out = io.StringIO()
    config = OmegaConf.create({"trainer": {"n_gpus_per_node": 1}})
    model = supervised.train(config, 2, RunFolder(folder), Console(file=out, width=40))
    assert model == folder / "model" and model.is_dir() and not checkpoint.parent.exists()
    return out.getvalue()


def test_every_step_is_a_line_and_a_row_of_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run(tmp_path / "run", "", monkeypatch).splitlines()
    assert lines[:2] == ["step 1/2: loss 1.0000, lr 0.001", "step 2/2: loss 0.5000, lr 0.001"]
    rows = RunFolder(tmp_path / "run").rows()
    assert [(row["step"], row["train/loss"]) for row in rows] == [(1, 1.0), (2, 0.5)]
    assert (tmp_path / "run" / "sft.yaml").is_file() and (tmp_path / "run" / "versions.json").is_file()


def test_a_failure_is_said_with_its_cause_and_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("The training failed (exit code 1): ValueError: too long The log is"):
        run(tmp_path / "run", "raise ValueError('too long')", monkeypatch)
    found = read_run(tmp_path / "run")
    assert found.state() == "failed" and "ValueError: too long" in found.cause()


def test_a_training_that_was_stopped_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", STOPS, monkeypatch)
    found = read_run(tmp_path / "run")
    assert (found.state(), found.step, found.cause()) == ("interrupted", 2, "Stopped (SIGTERM) after step 2.")


def test_a_place_where_no_folder_can_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with refused("cannot be made"):
        run(tmp_path / "file" / "run", "", monkeypatch)
