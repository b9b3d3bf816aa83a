"""A real training that logs to a file, tensorboard and wandb (offline), with every token in its trajectories."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb_file import history, table

from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.launch import command
from ragen_verl.runs.trajectories import messages, read

pytestmark = [pytest.mark.train, pytest.mark.slow]

STEPS, GROUPS, MEMBERS, HELD_OUT, SHOWN = 2, 2, 4, 4, 3
SMALL = [
    "trainer.logger=[console,file,tensorboard,wandb]",
    f"trainer.log_val_generations={SHOWN}",
    f"trainer.total_training_steps={STEPS}",
    f"trainer.test_freq={STEPS}",
    "trainer.save_freq=-1",
    f"ragen.train.envs.0.groups={GROUPS}",
    f"ragen.val.envs.0.groups={HELD_OUT}",
    "ragen.filter.strategy=top_k",
    "ragen.filter.value=0.5",
    "ragen.run.tokens=true",
    f"actor_rollout_ref.rollout.n={MEMBERS}",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "logged")
    line = command("nano/frozen_lake", [*SMALL, f"ragen.run.dir={folder.path}"])
    env = {**os.environ, "WANDB_MODE": "offline"}
    done = subprocess.run(line, capture_output=True, text=True, timeout=550, env=env, cwd=folder.path.parent)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def test_all_trackers_have_the_metrics_of_the_runs_folder(run: RunFolder) -> None:
    events = EventAccumulator(str(run.path / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    (file,) = (run.path / "file").iterdir()
    by_file = {row["step"]: row["data"] for row in map(json.loads, file.read_text().splitlines())}
    wandb_rows = history(run.path)
    assert [row["step"] for row in run.rows()] == [0, 1, 2]
    for row in run.rows():
        step = row.pop("step")
        row.pop("time")
        in_wandb = {key: value for one in wandb_rows if one["_step"] == step for key, value in one.items()}
        for name, value in row.items():
            (in_events,) = [one.value for one in events.Scalars(name) if one.step == step]
            assert [in_events, in_wandb[name], by_file[step][name]] == pytest.approx([value] * 3, rel=1e-6), name
    assert {path.name for path in run.path.parent.iterdir()} == {"logged"}, "nothing beside the run's folder"


def test_tables_hold_whole_trajectories_of_the_same_states(run: RunFolder) -> None:
    shown = table(run.path, history(run.path))
    assert [row[0] for row in shown] == [0, STEPS] and {len(row) for row in shown} == {1 + 3 * SHOWN}
    first, last = (row[1::3] for row in shown)
    assert first == last and len(set(first)) == SHOWN
    played = {messages(one, 1)[-1]["content"]: one for one in read(run.path, split="val", steps=[STEPS])}
    for place in range(SHOWN):
        record = next(one for text, one in played.items() if shown[-1][1 + 3 * place].endswith(text))
        assert shown[-1][3 + 3 * place] == record["return"] and record["stop_reason"] in shown[-1][2 + 3 * place]
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    assert "val/generations/text_summary" in events.Tags()["tensors"]


def test_tokens_have_the_advantages_of_the_update(run: RunFolder) -> None:
    for step in range(1, STEPS + 1):
        records = list(read(run.path, split="train", steps=[step]))
        assert sum(one["kept"] for one in records) == GROUPS * MEMBERS / 2
        values = []
        for turn in (turn for one in records for turn in one["turns"] if one["kept"]):
            tokens = turn["tokens"]
            assert {len(tokens[name]) for name in ("ids", "offsets", "log_probs", "mask", "advantages")} == {
                turn["response_tokens"]
            }
            assert len(tokens["prompt_ids"]) == turn["prompt_tokens"] and set(tokens["mask"]) == {1}
            values += tokens["advantages"]
        row = next(row for row in run.rows() if row["step"] == step)
        assert max(values) == pytest.approx(row["critic/advantages/max"], abs=1e-5)
        assert min(values) == pytest.approx(row["critic/advantages/min"], abs=1e-5)
        dropped = [turn["tokens"]["advantages"] for one in records if not one["kept"] for turn in one["turns"]]
        assert dropped and not any(dropped)
