"""The watchdog ends a process in which nothing is heard for too long, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ragen_verl.training.watchdog import STALLED

CODE = """
import sys, time
from pathlib import Path
from ragen_verl.training import watchdog
watchdog.LOOK_SECONDS = 0.02
dog = watchdog.Watchdog(float(sys.argv[1]), Path(sys.argv[2]))
dog.expect("the first thing")
{then}
"""


def run(then: str, minutes: float, file: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", CODE.format(then=then), str(minutes), str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_what_takes_too_long_ends_the_process_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "run" / "error.txt"
    done = run('dog.expect("the second thing")\ntime.sleep(100)', 0.005, file)
    assert done.returncode == STALLED
    assert file.read_text().startswith("StalledError: the second thing took more than 0.005 minutes")
    assert "<module>" in done.stderr  # where each thread stood


def test_rest_news_and_zero_minutes_keep_a_process_alive(tmp_path: Path) -> None:
    news = "for _ in range(20):\n    time.sleep(0.05)\n    dog.expect('the next thing')\ndog.rest()\ntime.sleep(1)"
    for then, minutes in ((news, 0.01), ("time.sleep(0.5)", 0.0)):
        done = run(then, minutes, tmp_path / "error.txt")
        assert done.returncode == 0, done.stderr
    assert not (tmp_path / "error.txt").exists()


def test_a_cause_that_cannot_be_written_ends_the_process_too(tmp_path: Path) -> None:
    (tmp_path / "run").touch()  # a file where the folder would be, as good as a full disk
    done = run("time.sleep(100)", 0.005, tmp_path / "run" / "error.txt")
    assert done.returncode == STALLED and "StalledError: the first thing" in done.stderr
