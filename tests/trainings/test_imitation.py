"""From random weights to a model that plays: demonstrations, supervised training with verl, and RL from there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from driver import trained
from transformers import AutoConfig, AutoModelForCausalLM

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.runs.folder import RunFolder

pytestmark = [pytest.mark.train, pytest.mark.slow]

RECIPE, MODEL = "nano/frozen_lake", "actor_rollout_ref.model.path"
# a board without holes, on which a few valid moves are worth something
SMALL = [f"ragen.{split}.envs.0.kwargs.{name}" for split in ("train", "val") for name in ("size=3", "frozen=1.0")]
STATES = 64


def cli(*words: object) -> None:
    command = [str(Path(sys.executable).parent / "ragen-verl"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nano model with random weights."""
    folder = tmp_path_factory.mktemp("models") / "fresh"
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(nano_model_path()))
    model.float().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(nano_model_path() / name, folder)
    return folder


def test_imitation_teaches_a_random_model_and_rl_goes_on(fresh: Path, tmp_path: Path) -> None:
    data, run = tmp_path / "lake.parquet", RunFolder(tmp_path / "sft")
    cli("collect", RECIPE, *SMALL, "--episodes", 2000, "--out", data)
    cli("sft", RECIPE, *SMALL, f"{MODEL}={fresh}", "sft.epochs=2", "--data", data, "--out", run.path)
    losses = [row["train/loss"] for row in run.rows()]
    assert len(losses) == 2 * (2000 // 64)
    assert losses[0] > 6 and sum(losses[-5:]) / 5 < 1.0, losses
    model = run.path / "model"
    policies = [word for folder in (fresh, model) for word in ("--policy", f"hf:{folder}")]
    cli("eval", RECIPE, *SMALL, *policies, "--states", STATES, "--out", tmp_path / "eval")
    found = json.loads((tmp_path / "eval" / "results.json").read_text())["policies"]
    success = {name: one["val/FrozenLake"]["success"]["value"] for name, one in found.items()}
    assert success["fresh"] < 0.05 and success["model"] > success["fresh"] + 0.05, success
    assert found["model"]["val/FrozenLake"]["valid_actions"] > 0.95
    fewer = ["trainer.total_training_steps=2", "trainer.save_freq=-1", "trainer.test_freq=-1"]
    fewer += ["ragen.train.envs.0.groups=8", f"ragen.val.envs.0.groups={STATES}", f"{MODEL}={model}"]
    rows = trained(RECIPE, tmp_path / "rl", *SMALL, *fewer)
    assert [row["step"] for row in rows][-1] == 2
    # the engine's weights are the imitating model's, so that it plays as it did behind vLLM
    assert abs(rows[0]["val-env/success"] - success["model"]) < 0.25
