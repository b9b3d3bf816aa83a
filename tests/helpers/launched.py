"""A `train` in a process of its own, with a stand-in in the place of verl's main."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ragen_verl.runs.folder import RunFolder

# a run of a recipe that does what a training's folder shows, without verl
STAND_IN = """
import json, sys, time
from pathlib import Path
folder = Path({folder!r})
print("ray init kwargs: ...", flush=True)
(folder / "phase.txt").write_text("evaluating on held-out states")
(folder / "config.yaml").write_text("trainer: {{total_training_steps: 2}}")
rows = [{{"step": 0, "val-env/success": 0.2, "val-env/return": 0.2, "val-env/valid": 1.0}}]
rows += [{{"step": 1, "train/success": 0.5, "timing_s/step": 1.0}}]
with (folder / "metrics.jsonl").open("a") as file:
    for row in rows:
        file.write(json.dumps({{**row, "time": time.time()}}) + "\\n")
{then}
"""
DRIVER = """
import sys
from ragen_verl.runs import launch
from ragen_verl.runs.folder import RunFolder
launch.version = lambda name: None
launch.command = lambda recipe, overrides: [sys.executable, "-c", {stand_in!r}]
sys.exit(launch.train("a/recipe", [], RunFolder({folder!r})))
"""
WAIT = "import subprocess\nsubprocess.Popen(['sleep', '600'])\nprint('waiting', flush=True)\ntime.sleep(600)"


def stand_in(folder: Path, then: str) -> str:
    return STAND_IN.format(folder=str(folder), then=then)


def start(folder: RunFolder, then: str, ignored: Sequence[signal.Signals] = ()) -> subprocess.Popen:
    """A `train` in a process of its own, once the stand-in waits."""
    code = DRIVER.format(folder=str(folder.path), stand_in=stand_in(folder.path, then))
    pipe = subprocess.PIPE

    def set_signals() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
        for one in ignored:
            signal.signal(one, signal.SIG_IGN)

    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=pipe,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=set_signals,
    )
    until(lambda: folder.log_file.exists() and "waiting" in folder.log_file.read_text())
    return process


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.time() + seconds
    while not condition():
        assert time.time() < end
        time.sleep(0.05)


def alive(group: int) -> list[str]:
    """The processes of a group that still run; one that has ended and waits for its parent does not."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group, *_ = file.read_text().rpartition(")")[2].split()
            if int(its_group) == group and state not in "ZX":
                found.append(file.parent.name)
    return found
