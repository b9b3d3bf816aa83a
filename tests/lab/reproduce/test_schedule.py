"""Runs over GPUs, with real processes in the place of trainings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ragen_lab.reproduce.schedule import Task, devices, spread

SAYS = "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES']); sys.exit(int(sys.argv[1]))"


def tasks(folder: Path, codes: list[int]) -> list[Task]:
    return [Task([sys.executable, "-c", SAYS, str(code)], folder / f"{n}.out") for n, code in enumerate(codes)]


def test_every_run_sees_gpus_of_its_own(tmp_path: Path) -> None:
    assert spread(tasks(tmp_path, [0, 3, 0, 0]), ["0", "1", "2", "3", "4"], each=2) == [0, 3, 0, 0]
    assert {file.read_text().strip() for file in tmp_path.glob("*.out")} <= {"0,1", "2,3"}


def test_too_few_gpus_for_one_run_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs 4 GPUs and there are 2"):
        spread(tasks(tmp_path, [0]), ["0", "1"], each=4)


def test_gpus_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert devices() == ["2", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert devices() == []
