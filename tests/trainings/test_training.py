"""Real trainings: verl, Ray, FSDP2 and vLLM on this machine's CPU, on four environments, one of them behind HTTP.

It is killed after a step of which there is no checkpoint, and resumed: that step is made twice, in two processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from env_servers import server_processes
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.cpu.forked_driver import ForkedDriver
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.launch import begin
from ragen_verl.runs.launch import command as command_of

pytestmark = pytest.mark.train

RECIPE = "nano/mixture"
GROUPS, GROUP_SIZE, STEPS, SEED, EACH_HELD_OUT = 8, 2, 4, 10000, 6
KILLED = 3
SHARES = {"FrozenLake": 3, "SlipperyLake": 1, "GymLake": 2, "Sokoban": 2}
NEVER_TRAINED = ("Bandit", "FrozenLake5x5")
HELD_OUT = EACH_HELD_OUT * len(SHARES)
SMALL = [
    f"trainer.total_training_steps={STEPS}",
    "trainer.save_freq=2",
    "trainer.max_actor_ckpt_to_keep=1",
    f"trainer.test_freq={STEPS}",
    f"ragen.train.groups={GROUPS}",
    *(f"ragen.val.envs.{number}.groups={EACH_HELD_OUT}" for number in range(len(SHARES))),
    *(f"ragen.generalisation.envs.{number}.groups={EACH_HELD_OUT}" for number in range(len(NEVER_TRAINED))),
    f"actor_rollout_ref.rollout.n={GROUP_SIZE}",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "ragen.filter.strategy=top_k",
    "ragen.filter.value=0.5",
    "ragen.diagnostics.mutual_information.enabled=true",
    "ragen.diagnostics.mutual_information.share=0.2",  # of eight short rows two by two is more than 2 %
]


RAGEN_VERL = str(Path(sys.executable).parent / "ragen-verl")


@pytest.fixture(scope="module", autouse=True)
def sokoban() -> Iterator[None]:
    """The server of the recipe's fourth environment."""
    with server_processes(["SimpleSokoban-v0"]) as [(url, _)], pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGEN_VERL_ENV_URL", url)
        yield


def kill(process: subprocess.Popen | ForkedDriver) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    time.sleep(3)  # Ray's processes of this run notice that their driver is gone


def trajectories(folder: RunFolder, split: str, step: int) -> list[dict]:
    lines = (folder.path / "trajectories" / split / f"{step:06d}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@dataclass(frozen=True)
class Killed:
    """What a run's first process left: the folder, its rows, and the trajectories of the step to be made again."""

    folder: RunFolder
    rows: list[dict]
    again: list[dict]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A training of four steps, killed after its third; the newest checkpoint is of its second."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "run")
    folder.make()
    with folder.log_file.open("a") as file:
        process = begin(command_of(RECIPE, [*SMALL, f"ragen.run.dir={folder.path}"]), file)
    deadline = time.time() + 400
    while process.poll() is None and not any(row["step"] == KILLED for row in folder.rows()):
        assert time.time() < deadline, "the first three steps took too long"
        time.sleep(0.2)
    assert process.poll() is None, "it ended before it could be killed\n" + folder.log_file.read_text()[-4000:]
    kill(process)
    return Killed(folder, folder.rows(), trajectories(folder, "train", KILLED))


@pytest.fixture(scope="module")
def run(killed: Killed) -> RunFolder:
    """The killed training resumed to its end."""
    folder = killed.folder
    done = subprocess.run([RAGEN_VERL, "resume", str(folder.path)], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr + folder.log_file.read_text()[-4000:]
    assert "held-out success" in done.stdout
    assert str(folder.path) in done.stdout.replace("\n", "")
    return folder


def test_run_folder_has_every_file(run: RunFolder) -> None:
    for name in ("config.yaml", "versions.json", "metrics.jsonl", "summary.json", "verdict.json", "log.txt"):
        assert (run.path / name).stat().st_size > 0, name
    assert (run.path / "checkpoints" / "global_step_4" / "actor").is_dir()
    assert not run.error.exists()


def test_every_step_is_logged_with_ragens_names(run: RunFolder) -> None:
    rows = run.rows()
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    for row in rows[1:]:
        for name in (
            "train/FrozenLake/success",
            f"train/FrozenLake/pass@{GROUP_SIZE}",
            "train/FrozenLake/action_is_valid",
            "train/FrozenLake/action_is_effective",
            "rollout/in_group_std",
            "rollout/chosen_in_group_std",
            "rollout/filter_kept_ratio",
            "train/response_length",
            "train/reasoning_length",
            "actor/entropy",
            "actor/grad_norm",
            "timing_s/gen",
        ):
            assert name in row, name
        assert row["rollout/filter_kept_ratio"] == 0.5
        assert 0.1 < row["actor/computed_tokens"] < 0.95  # the rows of a group share their prompt
        assert row["rollout/chosen_in_group_std"] >= row["rollout/in_group_std"]


def test_diagnostics_run_along(run: RunFolder) -> None:
    rows = run.rows()
    assert rows[1]["mismatch/mean"] < 1e-4  # float32 on both sides
    assert rows[1]["mi/retrieval_chance"] > 0
    assert all(row["verdict/warnings"] == 0 and row["echo/format_valid"] > 0.5 for row in rows[1:])
    assert json.loads(run.verdict.read_text())["step"] == STEPS
    assert (run.kept / "best" / "step.txt").read_text() == str(STEPS)  # the one step with both


def test_a_checkpoint_is_a_model_that_transformers_loads(run: RunFolder, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    done = CliRunner().invoke(app, ["export", str(run.path), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    (shard,) = (run.path / "checkpoints" / f"global_step_{STEPS}" / "actor").glob("model_world_size_1_rank_0.pt")
    saved = torch.load(shard, weights_only=False)
    for name, weights in model.state_dict().items():
        trained = saved[name].to_local() if hasattr(saved[name], "to_local") else saved[name]
        assert weights.dtype == torch.float32 and torch.equal(weights, trained), name  # as it was trained
    prompt = tokenizer("P", return_tensors="pt")
    assert model.generate(**prompt, max_new_tokens=4, do_sample=False).shape[1] > prompt["input_ids"].shape[1]
    page = (tmp_path / "README.md").read_text()
    assert f"# {RECIPE}, step {STEPS}" in page and f"| this model | {STEPS} |" in page
    assert f"ragen-verl train {RECIPE} {SMALL[0]}" in page


def test_trajectories_start_from_the_recipes_seeds(run: RunFolder) -> None:
    for step in range(1, STEPS + 1):
        records = trajectories(run, "train", step)
        first = SEED + (step - 1) * GROUPS
        assert sorted(one["seed"] for one in records) == sorted(
            seed for seed in range(first, first + GROUPS) for _ in range(GROUP_SIZE)
        )
        assert sum(one["kept"] for one in records) == GROUPS * GROUP_SIZE / 2
        for one in records:
            assert {"state", "reasoning", "actions", "executed", "observation", "reward", "penalty"} <= set(
                one["turns"][0]
            )
            assert one["return"] == pytest.approx(sum(turn["reward"] + turn["penalty"] for turn in one["turns"]))
            assert "<|im_start|>" not in one["turns"][0]["state"]


def test_update_sees_the_kept_rows_and_no_padding(run: RunFolder) -> None:
    """verl fills a filtered batch up to its mini-batch; here the log would show 16 rows instead of 8."""
    log = (run.path / "log.txt").read_text()
    assert "synthetic padding samples" not in log


def test_summary_has_before_and_after(run: RunFolder) -> None:
    summary = json.loads(run.summary.read_text())
    assert summary["steps"] == STEPS
    assert summary["seed"] == SEED
    for when, step in (("before", 0), ("after", STEPS)):
        records = trajectories(run, "val", step)
        assert len(records) == HELD_OUT
        assert summary[when]["success"] == pytest.approx(sum(one["success"] for one in records) / HELD_OUT)
        assert summary[when]["return"] == pytest.approx(sum(one["return"] for one in records) / HELD_OUT)


def test_killed_run_goes_on_at_its_newest_checkpoint(killed: Killed, run: RunFolder) -> None:
    rows = run.rows()
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[:KILLED] == killed.rows[:KILLED] and rows[KILLED] != killed.rows[KILLED]  # with the time of each
    ours, theirs = (
        sorted((one["seed"], one["rollout_index"], one["turns"][0]["state"]) for one in records)
        for records in (killed.again, trajectories(run, "train", KILLED))
    )
    assert ours == theirs


def test_the_checkpoint_of_before_the_resume_is_removed_whole(run: RunFolder) -> None:
    folders = [one.name for one in (run.path / "checkpoints").iterdir() if one.is_dir()]
    assert folders == [f"global_step_{STEPS}"]
    assert {"actor", "data.pt"} <= {one.name for one in (run.path / "checkpoints" / folders[0]).iterdir()}


def test_resumed_run_knows_what_was_met_before(run: RunFolder) -> None:
    met = {one["turns"][0]["state"] for step in range(1, STEPS + 1) for one in trajectories(run, "train", step)}
    found = sum(one["turns"][0]["state"] in met for one in trajectories(run, "val", STEPS))
    assert run.rows()[-1]["val-env/recurring"] == found >= EACH_HELD_OUT  # gymnasium's lake has one board


def test_same_weights_and_seeds_sample_the_same_episodes(killed: Killed, run: RunFolder) -> None:
    """The step after the checkpoint starts from the same weights in both processes."""
    ours, theirs = (
        {(one["seed"], one["rollout_index"]): [turn["response"] for turn in one["turns"]] for one in records}
        for records in (killed.again, trajectories(run, "train", KILLED))
    )
    same = sum(ours[key] == theirs[key] for key in ours)
    # batches form by arrival, and a sum in another order may move a token's probability by one rounding
    assert same >= 0.9 * len(ours)


def played(folder: RunFolder, split: str, step: int) -> Counter:
    records = trajectories(folder, split, step)
    assert not any(record["excluded"] for record in records)
    return Counter(record["env"] for record in records)


def test_every_environment_has_its_share_of_every_step(run: RunFolder) -> None:
    for row in run.rows()[1:]:
        assert {name: row[f"train/{name}/groups"] for name in SHARES} == SHARES
        assert row["actor/grad_norm"] > 0
        assert played(run, "train", row["step"]) == {name: GROUP_SIZE * share for name, share in SHARES.items()}


def test_held_out_and_other_environments_are_scored_apart(run: RunFolder) -> None:
    last = run.rows()[-1]
    assert played(run, "val", STEPS) == dict.fromkeys(SHARES, EACH_HELD_OUT)
    assert played(run, "generalisation", STEPS) == dict.fromkeys(NEVER_TRAINED, EACH_HELD_OUT)
    scored = [f"val-env/{name}/success" for name in SHARES]
    scored += [f"generalisation/{name}/success" for name in NEVER_TRAINED]
    assert all(0 <= last[key] <= 1 for key in scored)
    assert 0 <= last["val-env/unseen_success"] <= 1
