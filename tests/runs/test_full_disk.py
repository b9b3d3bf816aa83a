"""A run's files on a full disk: nothing is half, the error names the file, the cause is kept where there is room."""

from __future__ import annotations

import errno
import io
import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from ragen_lab.qualify.findings import Outcome
from ragen_lab.reproduce import results
from ray.exceptions import RayTaskError
from rich.console import Console
from saved_checkpoints import save
from small_disk import fill, small_disk

from ragen_verl.runs import disk, launch
from ragen_verl.runs.cause import cause
from ragen_verl.runs.checkpoints import damage, pointed_at, saving
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.writing import TaskPrompts, write

NO_SPACE = "No space left on device"
TASK_PROMPT = {"system": "s", "head": "h"}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as folder:
        yield folder


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process grows beyond this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_line_is_added_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    with files_up_to(10_000), pytest.raises(OSError, match=r"metrics\.jsonl") as caught:
        for step in range(1000):
            disk.append(file, json.dumps({"step": step, "text": "x" * 700}) + "\n")
    assert caught.value.filename == str(file)
    lines = file.read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(len(lines))) and len(lines) > 5


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "verdict.json"
    disk.replace(file, "old")
    with files_up_to(1000), pytest.raises(OSError, match=r"verdict\.json"):
        disk.replace(file, "n" * 5000)
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


def test_results_and_outcomes_stay_as_they_were_too(tmp_path: Path) -> None:
    empty = {"schema": 1, "item": "small", "settings": {}, "runs": [], "left_out": []}
    result = results.write(empty, tmp_path / "out")
    outcome = tmp_path / "engine.json"
    Outcome("engine").write(outcome)
    with files_up_to(1000):
        with pytest.raises(OSError, match=r"small\.json"):
            results.write({**empty, "runs": [{"variant": "a" * 5000}]}, tmp_path / "out")
        with pytest.raises(OSError, match=r"engine\.json"):
            Outcome("engine", sentence="a" * 5000).write(outcome)
    assert results.read("small", tmp_path / "out") == empty and list((tmp_path / "out").iterdir()) == [result]
    assert Outcome.read(outcome) == Outcome("engine") and set(tmp_path.iterdir()) == {outcome, tmp_path / "out"}


def test_an_error_that_names_its_file_keeps_the_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"folder/metrics\.jsonl"):
        disk.append(tmp_path / "no folder" / "metrics.jsonl", "x")
    with pytest.raises(OSError, match=f"{NO_SPACE}: '/dev/full'"):
        disk.append(Path("/dev/full"), "x")


# -- on a disk that is full -------------------------------------------------------------------------------------------


def test_a_full_disk_is_seen(small: Path, tmp_path: Path) -> None:
    assert disk.full(tmp_path) is False and not list(tmp_path.glob(".room*"))
    fill(small)
    assert disk.full(small) is True and [path.name for path in small.iterdir()] == ["filling"]


def test_metrics_of_a_full_disk_stay_readable(small: Path) -> None:
    run = RunFolder(small / "run")
    run.begin(OmegaConf.create({}), 0)
    filling = fill(small, left=8192)
    with pytest.raises(OSError, match=f"{NO_SPACE}.*metrics.jsonl"):
        for step in range(100):
            run.log(step, {"text": "x" * 700})
    steps = [row["step"] for row in run.rows()]
    assert steps == list(range(len(steps))) and steps and run.metrics.read_bytes().endswith(b"\n")
    with pytest.raises(OSError, match=NO_SPACE):
        run.begin(OmegaConf.create({"many": "y" * 9000}), step=2)
    assert [row["step"] for row in run.rows()] == steps  # what cannot be written anew is not lost
    filling.unlink()
    run.begin(OmegaConf.create({}), step=2)
    run.log(3, {})
    assert [row["step"] for row in run.rows()] == [0, 1, 2, 3]


def test_trajectories_of_a_full_disk_are_all_or_none(small: Path) -> None:
    file, preambles = small / "trajectories" / "train" / "000001.jsonl", TaskPrompts(small / "preambles.jsonl")
    record = {"preamble": TASK_PROMPT, "metrics": {}, "turns": [], "error": "x" * 3000}
    write(file, [record], preambles)
    before = file.read_bytes()
    fill(small, left=8192)
    with pytest.raises(OSError, match=f"{NO_SPACE}.*000001.jsonl"):
        write(file, [record] * 100, preambles)
    assert file.read_bytes() == before and [one.name for one in file.parent.iterdir()] == [file.name]


def test_the_cause_is_kept_as_far_as_there_is_room(small: Path) -> None:
    run = RunFolder(small / "run")
    run.path.mkdir()
    text = "Traceback (most recent call last):\n" + "  File 'x'\n" * 3000 + "ValueError: of this kind\n"
    fill(small, left=12288)
    run.write_cause(text)
    assert run.error.read_text() == "ValueError: of this kind\n"
    run.error.unlink()
    fill(small)
    run.write_cause(text)
    assert not run.error.exists() and [path.name for path in run.path.iterdir()] == []


def test_what_others_could_not_write_is_given_a_path(small: Path) -> None:
    run = RunFolder(small / "run")
    for error in (
        OSError(errno.ENOSPC, NO_SPACE),
        RayTaskError("save", f"OSError: [Errno 28] {NO_SPACE}", OSError(errno.ENOSPC, NO_SPACE)).as_instanceof_cause(),
    ):
        with pytest.raises(type(error)), run.keeps_cause():
            raise error
        assert cause(run.error.read_text()) == f"OSError: [Errno 28] {NO_SPACE}: '{run.path}'"
    assert disk.shortage(OSError(errno.ENOSPC, NO_SPACE, "/a/file"), small) is None
    assert disk.shortage(ValueError("of another kind"), small) is None


def test_a_checkpoint_without_room_is_removed_and_said(small: Path) -> None:
    save(small, 20)
    checkpoint = small / "global_step_40"
    with pytest.raises(OSError, match=f"{NO_SPACE}: '{checkpoint}'") as caught, saving(checkpoint):
        save(small, 40, size=100_000)  # torch does not say why it could not write
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert not checkpoint.exists() and pointed_at(small) == 20 and damage(small / "global_step_20") is None


def test_torchs_error_on_a_disk_with_room_stays_its_own(tmp_path: Path) -> None:
    error = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 1024 vs 982")
    with pytest.raises(RuntimeError, match="unexpected pos"), saving(tmp_path / "global_step_1"):
        raise error


def test_the_screen_says_it_where_no_file_could(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(small / "run")
    then = f"open({str(small / 'more')!r}, 'wb').write(bytes(1 << 21))"
    monkeypatch.setattr(launch, "version", lambda name: None)
    monkeypatch.setattr(
        launch, "command", lambda *_: [sys.executable, "-c", f"try:\n  {then}\nexcept OSError: exit(1)"]
    )
    out = io.StringIO()
    assert launch.train("a/recipe", [], run, Console(file=out, width=40)) == 1
    assert f"There is no space left on the device of {run.path}." in out.getvalue().splitlines()
