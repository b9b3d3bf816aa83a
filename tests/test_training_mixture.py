"""A real training on four environments at once: two of ours, gymnasium's own, one on a server."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from env_servers import server_processes

from ragen_verl.run import _command
from ragen_verl.run_folder import RunFolder

pytestmark = pytest.mark.train

GROUPS, MEMBERS, STEPS, HELD_OUT = 8, 2, 2, 6
SMALL = [
    f"trainer.total_training_steps={STEPS}",
    f"trainer.test_freq={STEPS}",
    "trainer.val_before_train=false",
    "trainer.save_freq=-1",
    f"ragen.train.groups={GROUPS}",
    *(f"ragen.val.envs.{number}.groups={HELD_OUT}" for number in range(4)),
    *(f"ragen.generalisation.envs.{number}.groups={HELD_OUT}" for number in range(2)),
    f"actor_rollout_ref.rollout.n={MEMBERS}",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
]
SHARES = {"FrozenLake": 3, "SlipperyLake": 1, "GymLake": 2, "Sokoban": 2}
NEVER_TRAINED = ("Bandit", "FrozenLake5x5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "mixture")
    command = _command("nano/mixture", [*SMALL, f"ragen.run.dir={folder.path}"])
    with server_processes(["SimpleSokoban-v0"]) as [(url, _)]:
        env = {**os.environ, "RAGEN_VERL_ENV_URL": url}
        done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def played(folder: RunFolder, split: str, step: int) -> Counter:
    lines = Path(folder.path, "trajectories", split, f"{step:06d}.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert not any(record["excluded"] for record in records)
    return Counter(record["env_id"] for record in records)


def test_every_environment_has_its_share_of_every_step(folder: RunFolder) -> None:
    rows = folder.rows()
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    for row in rows:
        assert {name: row[f"train/{name}/groups"] for name in SHARES} == SHARES
        assert row["actor/grad_norm"] > 0
        assert played(folder, "train", row["step"]) == {name: MEMBERS * share for name, share in SHARES.items()}


def test_held_out_and_other_environments_are_scored_apart(folder: RunFolder) -> None:
    last = folder.rows()[-1]
    assert played(folder, "val", STEPS) == dict.fromkeys(SHARES, HELD_OUT)
    assert played(folder, "generalisation", STEPS) == dict.fromkeys(NEVER_TRAINED, HELD_OUT)
    scored = [f"val-env/{name}/success" for name in SHARES]
    scored += [f"generalisation/{name}/success" for name in NEVER_TRAINED]
    assert all(0 <= last[key] <= 1 for key in scored)
