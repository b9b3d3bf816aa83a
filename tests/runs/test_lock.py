"""One training in a folder, which ends with its command."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from launched import alive, start, until

import ragen_verl.cli.prepare as prepared_run
from ragen_verl.cli.prepare import prepare
from ragen_verl.errors import RecipeError
from ragen_verl.runs import lock
from ragen_verl.runs.folder import RunFolder

HOLDER = "import sys, time; from pathlib import Path; from ragen_verl.runs import lock\nlock.hold(Path(sys.argv[1]))\n"


@pytest.fixture
def other(tmp_path: Path):
    """A process that trains in the folder."""
    code = f"{HOLDER}print('holds', flush=True)\ntime.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "holds\n"
    yield process
    process.kill()
    process.wait()


def test_a_folder_whose_run_is_alive_is_refused_by_its_process(tmp_path: Path, other: subprocess.Popen) -> None:
    for attempt in (lambda: lock.check(tmp_path), lambda: lock.hold(tmp_path), lock.taken(tmp_path).__enter__):
        with pytest.raises(RecipeError, match=rf"{tmp_path} \(process {other.pid} on .*kill {other.pid}"):
            attempt()
    other.kill()
    other.wait()
    lock.check(tmp_path)
    with lock.taken(tmp_path):  # the file that is left stops nobody
        assert lock.is_held(tmp_path)
    assert not lock.is_held(tmp_path)


def test_eight_starts_of_one_second_get_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prepared_run, "datetime", SimpleNamespace(now=lambda: datetime(2026, 1, 1)))
    prepare("nano/frozen_lake", [])  # so that the processes have all that they import
    assert list(tmp_path.iterdir()) == []
    fork = multiprocessing.get_context("fork")
    go, claimed = fork.Barrier(8), fork.Barrier(9)
    starts = [fork.Process(target=train_until_all_do, args=(go, claimed), daemon=True) for _ in range(8)]
    for one in starts:
        one.start()
    claimed.wait(120)
    late = prepare("nano/frozen_lake", []).with_own_folder()  # the first name is of a run that is alive
    named = {one.name: one for one in (tmp_path / "runs").iterdir()}
    first = "nano-frozen_lake-20260101-000000"
    assert sorted(named) == [first, *(f"{first}-{number}" for number in range(2, 10))]
    assert late.folder.path == named.pop(f"{first}-9") and late.config.ragen.run.dir == str(late.folder.path)
    assert all((folder / "of").read_text() == str(folder) and lock.is_held(folder) for folder in named.values())
    claimed.wait(120)
    for one in starts:
        one.join()
    again = prepare("nano/frozen_lake", [f"ragen.run.dir={late.folder.path}"])
    assert again.with_own_folder().folder.path == late.folder.path  # as asked for: a run to continue


def train_until_all_do(go: Any, claimed: Any) -> None:
    prepared = prepare("nano/frozen_lake", [])
    go.wait(120)
    prepared = prepared.with_own_folder()
    with lock.taken(prepared.folder.path):
        (prepared.folder.path / "of").write_text(prepared.config.ragen.run.dir)
        claimed.wait(120)
        claimed.wait(120)


def test_a_run_ends_with_its_command_and_is_locked_until_then(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    then = (
        "import subprocess, threading\nfrom ragen_verl.runs import lock\nlock.hold(folder)\n"
        "subprocess.Popen(['sleep', '600'])\n"
        "print('waiting', flush=True)\n"
        "try:\n    time.sleep(600)\nfinally:\n    time.sleep(1)\n    (folder / 'ended').touch()\n"
    )
    command = start(folder, then)
    (driver,) = [int(one) for one in subprocess.check_output(["pgrep", "-P", str(command.pid)], text=True).split()]
    command.kill()
    command.wait()
    until(lambda: lock._named(folder.path).startswith(f"{driver} "))
    with pytest.raises(RecipeError, match=f"process {driver} "):
        lock.check(folder.path)
    until(lambda: not alive(driver))
    assert (folder.path / "ended").exists()  # it was asked before it was killed
    assert folder.error.read_text().startswith("Stopped: its command") and not lock.is_held(folder.path)


def test_sigterm_works_at_once_where_sigint_is_ignored(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    then = "print('waiting', flush=True)\ntime.sleep(4)\n(folder / 'reached').touch()"
    command = start(folder, then, ignored=[signal.SIGINT])
    command.terminate()
    out, _ = command.communicate()
    assert "Go on with" in out and command.returncode == 128 + signal.SIGTERM
    time.sleep(0.1)
    assert not (folder.path / "reached").exists()


def test_a_run_that_ended_before_the_signal_is_told_as_ended(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    then = (
        "import signal\nfrom ragen_verl.runs.folder import RunFolder\n"
        "def end(*_):\n    RunFolder(folder).finish(recipe='a/recipe', seed=1)\n    sys.exit(1)\n"
        "for one in (signal.SIGINT, signal.SIGTERM):\n    signal.signal(one, end)\n"
        "print('waiting', flush=True)\ntime.sleep(600)"
    )
    command = start(folder, then)
    os.kill(command.pid, signal.SIGTERM)
    out, _ = command.communicate()
    assert command.returncode == 0 and "Go on with" not in out and "held-out success" in out
    assert not folder.error.exists()
