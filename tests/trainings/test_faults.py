"""A real training of which a process dies or hangs ends soon, says why, and leaves no process behind."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import psutil
import pytest

from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.launch import begin, command, stop

pytestmark = [pytest.mark.train, pytest.mark.slow]

SMALL = [
    "trainer.total_training_steps=200",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=1",
    "ragen.train.envs.0.groups=4",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "ragen.run.stall_minutes=0.5",
]
FAULTS = {
    "episodes' worker killed": ("ray::AgentLoop", signal.SIGKILL, "AgentLoopWorker"),
    "engine killed": ("ray::vLLMHttpServer", signal.SIGKILL, "Error"),
    "trainer's rank killed": ("ray::WorkerDict", signal.SIGKILL, "ActorDied"),
    "engine hung": ("ray::vLLMHttpServer", signal.SIGSTOP, "StalledError"),
    "rank hung": ("ray::WorkerDict", signal.SIGSTOP, "StalledError"),
}
SECONDS = 120
VARIABLE = "RAGEN_VERL_TEST_OF_FAULTS"


def processes(name: str) -> list[psutil.Process]:
    """Those of one training: forked ones descend from this process, started ones have its environment."""
    found = []
    forked = {one.pid for one in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            title = " ".join(process.cmdline())
            if (process.pid in forked and title.startswith("ray::")) or process.environ().get(VARIABLE) == name:
                found.append(process)
    return [one for one in found if one.status() != psutil.STATUS_ZOMBIE]


def title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_the_run_with_its_cause(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, sign, said = FAULTS[fault]
    monkeypatch.setenv(VARIABLE, tmp_path.name)
    run, log = RunFolder(tmp_path / "run"), tmp_path / "log"
    with log.open("w") as file:
        driver = begin(command("nano/frozen_lake", [*SMALL, f"ragen.run.dir={run.path}"]), file)
    try:
        until(lambda: driver.poll() is not None or any(row["step"] == 2 for row in run.rows()), 300)
        assert driver.poll() is None, log.read_text()[-3000:]
        victims = [one for one in processes(tmp_path.name) if title(one).startswith(victim)]  # the engine has two
        assert victims
        for one in victims:
            one.send_signal(sign)
        assert driver.wait(SECONDS) not in (0, None)
    finally:
        stop(driver)
    if sign == signal.SIGSTOP:
        for one in victims:  # a stopped process notices nothing, and Ray kills not all of them
            with contextlib.suppress(psutil.NoSuchProcess):
                one.resume()
    rows = run.rows()
    assert said in run.error.read_text(), run.error.read_text()
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 2
    assert (run.path / "checkpoints" / f"global_step_{rows[-1]['step'] - 1}").is_dir()
    until(lambda: not processes(tmp_path.name), 30)


def until(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)
