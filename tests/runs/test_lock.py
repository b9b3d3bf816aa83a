"""One training in a folder, which ends with its command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from launched import alive, start, until

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


def test_runs_of_one_second_get_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = prepare("nano/frozen_lake", [])
    assert list(tmp_path.iterdir()) == []
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: mkdir_alone(first.folder.path), range(8)))
    assert sorted(made) == [False] * 7 + [True]
    others = [first.with_own_folder() for _ in range(2)]
    assert [one.folder.path.name for one in others] == [f"{first.folder.path.name}-{n}" for n in (2, 3)]
    assert all(one.folder.path.is_dir() and one.config.ragen.run.dir == str(one.folder.path) for one in others)
    named = prepare("nano/frozen_lake", [f"ragen.run.dir={others[0].folder.path}"])
    assert named.with_own_folder().folder.path == others[0].folder.path  # as asked for: a run to continue


def mkdir_alone(path: Path) -> bool:
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


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
