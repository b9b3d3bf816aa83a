"""A real training of which a process dies or hangs ends soon, says why, and leaves no process behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from driver import START, begun, trained, until
from saved_checkpoints import cut
from small_disk import fill, small_disk

from ragen_verl.runs.checkpoints import damage, pointed_at
from ragen_verl.runs.folder import RunFolder, checkpoints_in
from ragen_verl.runs.launch import end_group, stop
from ragen_verl.runs.trajectories import read

pytestmark = [pytest.mark.train, pytest.mark.slow, pytest.mark.timeout(2 * START)]

SMALL = [
    "trainer.total_training_steps=200",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=1",
    "ragen.train.envs.0.groups=4",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
]
FAULTS = {
    "episodes' worker killed": ("ray::AgentLoop", signal.SIGKILL, "AgentLoopWorker"),
    "engine killed": ("ray::vLLMHttpServer", signal.SIGKILL, "Error"),
    "trainer's rank killed": ("ray::WorkerDict", signal.SIGKILL, "ActorDied"),
    "engine hung": ("ray::vLLMHttpServer", signal.SIGSTOP, "StalledError"),
    "rank hung": ("ray::WorkerDict", signal.SIGSTOP, "StalledError"),
}
LOSS = """
from ragen_verl.training.losses import policy_loss


@policy_loss("no_number")
def no_number(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, rollout_is_weights=None):
    return (log_prob * float("nan")).sum(), {"actor/plain": 1.0}
"""
SECONDS = 120
"""In which a run ends after a fault, or after it has stood still for STALL_MINUTES."""
STALL_MINUTES = 1.5
"""More than the start of models and engine takes on a busy machine."""
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
    hung = sign == signal.SIGSTOP
    monkeypatch.setenv(VARIABLE, tmp_path.name)
    run, log = RunFolder(tmp_path / "run"), tmp_path / "log"
    settings = [f"ragen.run.dir={run.path}", *[f"ragen.run.stall_minutes={STALL_MINUTES}"] * hung]
    driver = begun("nano/frozen_lake", log, *SMALL, *settings, far=two_steps(run))
    try:
        assert driver.poll() is None, log.read_text()[-3000:]
        victims = [one for one in processes(tmp_path.name) if title(one).startswith(victim)]  # the engine has two
        assert victims
        for one in victims:
            one.send_signal(sign)
        assert driver.wait(SECONDS + 60 * STALL_MINUTES * hung) not in (0, None)
    finally:
        stop(driver)
    if hung:
        for one in victims:  # a stopped process notices nothing, and Ray kills not all of them
            with contextlib.suppress(psutil.NoSuchProcess):
                one.resume()
    rows = run.rows()
    assert said in run.error.read_text(), run.error.read_text()
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 2
    assert (run.path / "checkpoints" / f"global_step_{rows[-1]['step'] - 1}").is_dir()
    until(lambda: not processes(tmp_path.name), 30)


def test_a_killed_driver_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, tmp_path.name)
    run, log = RunFolder(tmp_path / "run"), tmp_path / "log"
    driver = begun("nano/frozen_lake", log, *SMALL, f"ragen.run.dir={run.path}", far=two_steps(run))
    try:
        assert driver.poll() is None, log.read_text()[-3000:]
        os.kill(driver.pid, signal.SIGKILL)
        assert driver.wait(SECONDS) == -signal.SIGKILL
        end_group(driver)  # as `ragen-verl train` does
        until(lambda: not processes(tmp_path.name), SECONDS)
    finally:
        stop(driver)


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(tmp_path: Path) -> None:
    run, settings = RunFolder(tmp_path / "run"), [*SMALL, "trainer.save_freq=2"]
    before = trained("nano/frozen_lake", run.path, *settings, "trainer.total_training_steps=4", cwd=tmp_path)
    seeds = sorted(one["seed"] for one in read(run.path, split="train", steps=[3]))
    (shard,) = (run.path / "checkpoints" / "global_step_4" / "actor").glob("model_*.pt")
    cut(shard)
    going_on = [str(Path(sys.executable).parent / "ragen-verl"), "resume", str(run.path), "--yes"]
    done = subprocess.run([*going_on, "trainer.total_training_steps=5"], capture_output=True, text=True, timeout=START)
    assert done.returncode == 0, done.stdout + done.stderr
    said = f"The checkpoint of step 4 (actor/{shard.name} is cut short) is damaged; going on from step 2."
    assert said in done.stdout and said in run.log_file.read_text()
    rows = run.rows()
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5] and rows[:2] == before[:2]
    assert sorted(one["seed"] for one in read(run.path, split="train", steps=[3])) == seeds
    assert pointed_at(run.path / "checkpoints") == 5
    assert all(damage(path) is None for step, path in checkpoints_in(run.path / "checkpoints").items() if step > 3)


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(LOSS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, tmp_path.name)
    loss = ["ragen.plugins=[mine.py]", "actor_rollout_ref.actor.policy_loss.loss_mode=no_number"]
    run, log = RunFolder(tmp_path / "run"), tmp_path / "log"
    driver = begun("nano/frozen_lake", log, *SMALL, *loss, f"ragen.run.dir={run.path}")
    assert driver.poll() not in (0, None)
    assert "NotFiniteError: actor/loss and actor/grad_norm were no finite number in 5 steps" in run.error.read_text()
    rows = run.rows()
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5] and all(row["update/not_finite"] == 2 for row in rows)
    assert json.loads(run.verdict.read_text())["primary"] == "not_finite"
    until(lambda: not processes(tmp_path.name), 30)


@pytest.mark.parametrize("what", ["everything", "checkpoints"])
def test_a_full_disk_ends_the_run_with_its_cause(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, tmp_path.name)
    with small_disk(tmp_path / "disk", "128m") as small:
        run, log = RunFolder(small / "run" if what == "everything" else tmp_path / "run"), tmp_path / "log"
        folder = small / "checkpoints"
        folders = [f"ragen.run.dir={run.path}", f"trainer.default_local_dir={folder}"]
        folders += ["trainer.max_actor_ckpt_to_keep=null", "trainer.max_critic_ckpt_to_keep=null"]  # nothing makes room
        driver = begun("nano/frozen_lake", log, *SMALL, *folders, far=lambda: pointed_at(folder))
        try:
            assert driver.poll() is None, log.read_text()[-3000:]
            fill(small)
            assert driver.wait(SECONDS) not in (0, None)
        finally:
            stop(driver)
        text = run.error.read_text() if run.error.exists() else log.read_text()
        assert "No space left on device" in text and str(small) in text
        assert damage(folder / f"global_step_{pointed_at(folder)}") is None
        whole = [step for step, path in checkpoints_in(folder).items() if (path / "actor").is_dir()]
        assert max(whole) == pointed_at(folder)
        rows = run.rows()
        assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
        assert len([json.loads(line) for line in run.metrics.read_text().splitlines()]) == len(rows)
        assert {one["step"] for one in read(run.path, split="train")} >= {row["step"] for row in rows}
        until(lambda: not processes(tmp_path.name), 30)


def test_a_hidden_gpu_stops_no_training_on_the_cpu(tmp_path: Path) -> None:
    few = [*SMALL, "trainer.total_training_steps=1", "trainer.save_freq=-1"]
    rows = trained("nano/frozen_lake", tmp_path / "run", *few, cwd=tmp_path, environment={"CUDA_VISIBLE_DEVICES": ""})
    assert [row["step"] for row in rows] == [1]


def two_steps(run: RunFolder) -> Callable[[], bool]:
    return lambda: any(row["step"] == 2 for row in run.rows())
