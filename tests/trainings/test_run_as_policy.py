"""A checkpoint behind vLLM plays the held-out episodes as the training's evaluation did; a judge behind vLLM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ragen_lab.evaluate.server import NAME, serving
from ragen_lab.score.registry import run as evaluate
from saved_episodes import plan, played

from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.runs.folder import RunFolder

pytestmark = [pytest.mark.train, pytest.mark.slow]

STATES = 64
SMALL = [
    "trainer.total_training_steps=2",
    "trainer.save_freq=2",
    "trainer.test_freq=2",
    "trainer.val_before_train=false",
    "ragen.train.envs.0.groups=4",
    f"ragen.val.envs.0.groups={STATES}",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.val_kwargs.do_sample=false",
    "actor_rollout_ref.rollout.val_kwargs.temperature=0",
    "ragen.run.tokens=true",
]


def cli(*args: object) -> None:
    command = [str(Path(sys.executable).parent / "ragen-verl"), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


def records(file: Path) -> dict[tuple, dict]:
    return {(one["seed"], one["rollout_index"]): one for one in map(json.loads, file.read_text().splitlines())}


def compared(turn: dict) -> dict:
    """A turn with its token ids, without what the clock and the last digits of floats decide."""
    kept = {name: value for name, value in turn.items() if not name.endswith("_seconds")}
    return kept | {"tokens": {name: value for name, value in turn["tokens"].items() if name != "log_probs"}}


def test_a_checkpoint_plays_as_training_evaluated_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    cli("train", "nano/frozen_lake", *SMALL, f"ragen.run.dir={folder.path}")
    given = ("--policy", f"run:{folder.path}@2", "--temperature", "0", "--out", tmp_path / "eval")
    cli("eval", "nano/frozen_lake", *SMALL, *given)
    training = records(folder.trajectories("val") / "000002.jsonl")
    (file,) = (tmp_path / "eval").glob("*/episodes.jsonl")
    evaluation = records(file)
    assert len(training) == STATES and training.keys() == evaluation.keys()
    for key, one in training.items():
        other = evaluation[key]
        for name in ("stop_reason", "success", "return", "truncated"):
            assert one[name] == other[name], (key, name)
        assert list(map(compared, one["turns"])) == list(map(compared, other["turns"])), key
    answers = {tuple(turn["tokens"]["ids"]) for one in training.values() for turn in one["turns"]}
    assert len(answers) > 1, "more than one answer was compared"
    small = ("--env", "FrozenLake", "--env", "Sokoban", "--instances", "2", "--samples", "2")
    cli("leaderboard", "--policy", f"run:{folder.path}@2", *small, "--out", tmp_path / "board")
    (row,) = json.loads((tmp_path / "board" / "leaderboard.json").read_text())["ranking"]
    assert (row["policy"], row["rank"]) == ("run@2", 1)


def test_vllm_judges_in_the_form_that_is_asked_for(tmp_path: Path) -> None:
    found = [played([plan(seed=seed)], seed=seed, thoughts=["on"]) for seed in (1, 2, 3)]
    # JSON may have blanks anywhere, and a model that knows no JSON writes them without end
    strict = ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    with serving(Path(nano_model_path()), dtype="float32", max_model_len=2048, arguments=strict) as url:
        evaluate(found, ["judge"], {"judge": {"model": NAME, "url": url, "cache": str(tmp_path / "judged.jsonl")}})
    assert all(0 <= one.scores["judge"] <= 1 for one in found)
    assert len((tmp_path / "judged.jsonl").read_text().splitlines()) == 3
