"""What diagnostics do in a training: the verdict's file, kept checkpoints, reasons to stop, state after a resume."""

import errno
import json
import math
import os
import shutil

import pytest
from traces import healthy

from ragen_verl.config import RagenConfig
from ragen_verl.diagnostics.finite import NotFiniteError
from ragen_verl.runs.folder import RunFolder
from ragen_verl.training.monitoring import TrainingMonitor

ENVS = [{"id": "FrozenLake-v0", "groups": 8}]


def watch(tmp_path, **stop):
    tmp_path.mkdir(exist_ok=True)
    config = RagenConfig.from_omegaconf(
        {
            "train": {"envs": ENVS, "seed": 1000},
            "val": {"envs": ENVS, "seed": 0},
            "run": {"dir": str(tmp_path)},
            "stop": stop,
        }
    )
    return TrainingMonitor(config, RunFolder(tmp_path), tmp_path / "checkpoints", kept=1.0)


def play(watched, lines, saves=()):
    """The steps as the trainer hands them in; of the checkpoints after the steps `saves` verl leaves the last."""
    reasons = []
    for line in lines:
        if line["step"] in saves:
            shutil.rmtree(watched.checkpoints, ignore_errors=True)
            checkpoint = watched.checkpoints / f"global_step_{line['step']}"
            checkpoint.mkdir(parents=True)
            (checkpoint / "weights").write_text(f"of step {line['step']}")
        metrics = {name: value for name, value in line.items() if name != "step"}
        reasons.append(watched.step(line["step"], metrics))
        watched.folder.log(line["step"], metrics)
    return reasons


def collapsing():
    """From step 60 on the engine's log-probabilities are not the trainer's."""
    lines = healthy(seed=0)
    for line in lines[59:]:
        line |= {"mismatch/mean": 0.3, "mismatch/share": 0.05}
    return lines


def test_the_best_checkpoint_of_a_healthy_run_is_kept(tmp_path):
    watched = watch(tmp_path)
    lines = healthy(seed=0, steps=40)
    for line, score in zip(lines[9::10], (0.3, 0.5, 0.4, 0.4), strict=True):
        line["val-env/success"] = score
    assert play(watched, lines, saves=(10, 20, 30)) == [None] * 40
    assert (tmp_path / "kept" / "best" / "weights").read_text() == "of step 20"
    assert not (tmp_path / "kept" / "before_warning").exists()
    assert json.loads((tmp_path / "verdict.json").read_text())["status"] == "healthy"


def test_a_warning_keeps_the_checkpoint_before_it_and_may_stop(tmp_path):
    lines = collapsing()
    reasons = play(watch(tmp_path, on_warning="stop"), lines, saves=range(10, 121, 10))
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    warned = verdict["first_warning"]
    stopped = next(line["step"] for line, reason in zip(lines, reasons, strict=True) if reason)
    assert stopped == warned and verdict["primary"] in reasons[stopped - 1]
    before = max(step for step in range(10, 121, 10) if step < warned)
    assert (tmp_path / "kept" / "before_warning" / "weights").read_text() == f"of step {before}"


def test_a_resumed_run_has_the_verdict_it_would_have_had(tmp_path):
    lines = collapsing()
    whole = watch(tmp_path / "whole")
    play(whole, lines)
    first = watch(tmp_path / "parts")
    play(first, lines[:50])
    second = watch(tmp_path / "parts")
    second.resume()
    play(second, lines[50:])
    assert second.monitor.verdict.record() == whole.monitor.verdict.record()
    assert second.monitor.verdict.warned is not None


def test_early_stop_rules_count_over_a_resume(tmp_path):
    lines = [{"step": step, "rollout/in_group_reward_std": 1.0 if step <= 10 else 0.0} for step in range(1, 21)]
    first = watch(tmp_path, reward_variance_collapse=5)
    assert not any(play(first, lines[:13]))
    second = watch(tmp_path, reward_variance_collapse=5)
    second.resume()
    reasons = play(second, lines[13:])
    assert [bool(reason) for reason in reasons[:2]] == [False, True]
    assert "reward_variance_collapse" in reasons[1]


def test_where_no_link_can_be_made_checkpoints_are_copied(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    play(watch(tmp_path), healthy(1, 40), saves=range(10, 41, 10))
    step = (tmp_path / "kept" / "best" / "step.txt").read_text()
    assert (tmp_path / "kept" / "best" / "weights").read_text() == f"of step {step}"


def test_a_copy_that_fails_leaves_the_kept_checkpoint(tmp_path, monkeypatch):
    lines = healthy(1, 40)
    lines[9]["val-env/success"], lines[19]["val-env/success"], lines[29]["val-env/success"] = 0.1, 0.2, 0.3
    watched = watch(tmp_path)
    play(watched, lines[:25], saves=(10, 20))

    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", no_room)
    monkeypatch.setattr(shutil, "copy2", no_room)
    with pytest.raises(OSError, match="No space left"):
        play(watched, lines[25:], saves=(30,))
    assert (tmp_path / "kept" / "best" / "weights").read_text() == "of step 20"
    assert not (tmp_path / "kept.tmp").exists()


def test_a_step_of_nan_leaves_valid_json_and_ends_the_run(tmp_path):
    watched, lines = watch(tmp_path), healthy(1, 30)
    for line in lines:
        line["actor/loss"] = 0.1
        del line["update/not_finite"]
    for line in lines[20:]:
        line |= {
            "actor/loss": math.nan,
            "actor/grad_norm": math.nan,
            "actor/entropy": math.nan,
            "mismatch/mean": math.inf,
        }

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    for line in lines[:24]:
        play(watched, [line])
        watched.updates.check(line["step"])
    verdict = json.loads((tmp_path / "verdict.json").read_text(), parse_constant=refuse)
    assert verdict["primary"] == "not_finite" and verdict["first_warning"] == 22
    for text in (tmp_path / "metrics.jsonl").read_text().splitlines():
        json.loads(text, parse_constant=refuse)
    assert [row["update/not_finite"] for row in watched.folder.rows()] == 20 * [0.0] + 4 * [2.0]
    second = watch(tmp_path)  # a run that goes on counts those before
    second.resume()
    play(second, [lines[24]])
    with pytest.raises(NotFiniteError):
        second.updates.check(25)
    summary = second.folder.finish(recipe="a recipe", seed=1)
    assert json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse) == summary
