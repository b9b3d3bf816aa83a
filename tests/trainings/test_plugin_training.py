"""Algorithms from outside this repository, trained by name: the example package, and a file that a recipe names.

The example's training has adapters as well: a training of their own, with a critic, is slow (`test_other_models`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import with_site
from driver import trained
from loaded_lines import ON_A_CPU, WHEN_ASKED, recorded, recording
from paths import ROOT
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.trajectories import read_file

pytestmark = pytest.mark.train

SMALL = [
    "trainer.total_training_steps=2",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "ragen.train.envs.0.groups=4",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
]
LOSS = """
import torch
from ragen_verl.training.losses import policy_loss
from verl.trainer.ppo.core_algos import agg_loss, register_adv_est


@policy_loss("plain_policy_gradient")
def plain(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, rollout_is_weights=None):
    losses = -advantages * log_prob
    return agg_loss(losses, response_mask, loss_agg_mode, **config.global_batch_info), {"actor/plain": 1.0}


@register_adv_est("whole_return")
def whole_return(token_level_rewards, response_mask, index, config, **_):
    advantages = token_level_rewards.sum(dim=1, keepdim=True) * response_mask
    return advantages, advantages
"""
REWARDS = """
from ragen_verl import reward


@reward("brevity")
def brevity(trajectory):
    return {"short": [-len(turn.text) / 1000 for turn in trajectory.turns], "turns": -float(len(trajectory.turns))}


@reward("tidy")
def tidy(trajectory):
    return {"valid": [float(turn.valid) for turn in trajectory.turns]}
"""
PARTS = ("environment", "brevity/short", "brevity/turns", "tidy/valid")

RAGEN_VERL = Path(sys.executable).with_name("ragen-verl")


@pytest.fixture(scope="module")
def example(run: RunFolder) -> list[dict]:
    return run.rows()


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the example's training leaves what its processes import."""
    return tmp_path_factory.mktemp("recorded") / "imports"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, imports: Path) -> RunFolder:
    """The example package installed and trained by name; on adapters, with two rewards beside the environment's."""
    folder = tmp_path_factory.mktemp("example")
    environment = with_site(folder / "site")
    pip = [sys.executable, "-m", "pip", "install", str(ROOT / "examples" / "my_algorithm")]
    subprocess.run(pip, check=True, capture_output=True, env=environment)
    overrides = [
        "algorithm.adv_estimator=bounded",
        "ragen.advantage.sharpness=0.01",
        "ragen.filter.strategy=above_mean",
        "ragen.filter.factor=0.5",
        "actor_rollout_ref.model.lora_rank=8",
        "actor_rollout_ref.actor.use_kl_loss=true",
        "actor_rollout_ref.actor.kl_loss_coef=0.001",
        "actor_rollout_ref.actor.kl_loss_type=low_var_kl",
        "ragen.diagnostics.mismatch.bypass_freq=1",
        "ragen.plugins=[rewards.py]",
        "ragen.rewards.brevity.weight=0.1",
        "ragen.rewards.tidy.weight=0.01",
    ]
    (folder / "rewards.py").write_text(REWARDS)
    command = [RAGEN_VERL, "train", "nano/frozen_lake", *SMALL, *overrides, "ragen.run.dir=run"]
    environment = recording(environment, imports)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=550)
    run = RunFolder(folder / "run")
    assert done.returncode == 0, done.stdout + done.stderr + run.log_file.read_text()[-6000:]
    assert str(run.path) in done.stdout.replace("\n", "")
    return run


def test_it_loads_what_nothing_asks_for_in_no_process(example: list[dict], imports: Path) -> None:
    found = recorded(imports)
    assert {"ragen_verl.runs.launch", "ragen_verl.training.trainer", "ragen_verl.training.agent_loop"} <= found
    assert not [name for name in found if name.startswith("ragen_lab")]
    estimators = {name for name in WHEN_ASKED if name.startswith("ragen_verl.advantages.")}  # a plugin adds one
    assert found & (WHEN_ASKED.keys() - ON_A_CPU.keys() - estimators) == set()


def test_train_makes_both_steps(example: list[dict]) -> None:
    assert [row["step"] for row in example] == [1, 2]


def test_example_package_trains_by_name(example: list[dict]) -> None:
    for row in example:
        assert 1 <= row["rollout/filter_kept_count"] <= 4
        assert 0 <= row["wordless/share"] <= 1
        assert row["actor/grad_norm"] > 0
        # tanh of a hundredth of a return, which is 11 at most, where grpo has advantages of 0.5 and more
        assert 0 < row["critic/advantages/max"] < 0.12


def test_adapters_reach_engine_and_leave_the_reference(example: list[dict]) -> None:
    for row in example:
        assert row["mismatch/max"] < 1e-4
        assert abs(row["actor/kl_loss"]) < 1e-6  # new adapters do nothing, nor does the first update of a warm-up


def test_two_rewards_are_logged_and_shown_by_their_parts(run: RunFolder) -> None:
    for row in run.rows():
        played = list(read_file(run.trajectories("train") / f"{row['step']:06d}.jsonl"))
        for part in PARTS:
            each = [sum(turn["rewards"][part] for turn in one["turns"]) for one in played]
            assert row[f"train/FrozenLake/reward/{part}"] == pytest.approx(sum(each) / len(each)), part
        for one in played:
            paid = sum(sum(turn["rewards"].values()) + turn["penalty"] for turn in one["turns"])
            assert one["return"] == pytest.approx(paid)
            assert sum(turn["rewards"]["brevity/turns"] for turn in one["turns"]) == -0.1 * len(one["turns"])
    shown = CliRunner().invoke(app, ["show", str(run.path), "--step", "1", "--limit", "1"], env={"COLUMNS": "200"})
    assert all(f"{part} " in shown.stdout for part in PARTS), shown.output


@pytest.mark.slow
def test_file_of_a_recipe_reaches_trainer_and_workers(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LOSS)
    mine = ["ragen.plugins=[mine.py]", "algorithm.adv_estimator=whole_return"]
    loss = "actor_rollout_ref.actor.policy_loss.loss_mode=plain_policy_gradient"
    rows = trained("nano/frozen_lake", tmp_path / "run", *SMALL, *mine, loss, cwd=tmp_path)
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row["actor/plain"] == 1.0 and row["actor/grad_norm"] > 0 for row in rows)
