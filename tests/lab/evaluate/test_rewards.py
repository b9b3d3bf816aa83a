"""An evaluation gives the rewards of the recipe, as a training does."""

from __future__ import annotations

import pytest
from ragen_lab.evaluate.plan import episodes
from ragen_lab.evaluate.policies import Scripted
from ragen_lab.evaluate.runner import evaluate

from ragen_verl.config import RagenConfig
from ragen_verl.rollout.reward import REWARDS, reward


def test_an_evaluation_rewards_as_its_recipe_says(tmp_path, monkeypatch):
    monkeypatch.setattr(REWARDS, "_things", dict(REWARDS))
    reward("five")(lambda trajectory: {"end": 5})
    split = {"envs": [{"id": "FrozenLake-v0", "groups": 2, "kwargs": {"success_rate": 1.0}}], "seed": 0}
    block = {"train": split, "val": {**split, "seed": 9}, "run": {"dir": "x"}, "rollout": {"protocol": "boxed"}}
    ragen = RagenConfig.from_omegaconf({**block, "rewards": {"five": {"weight": 2.0}}})
    records = evaluate(ragen, Scripted("oracle"), episodes(ragen), tmp_path, lengths=(9, 9), settings={})
    for one in records:
        assert one["success"] and one["turns"][0]["response"].endswith("}")
        own = sum(turn["reward"] + turn["penalty"] for turn in one["turns"])
        assert one["return"] == pytest.approx(own + 10.0) and one["metrics"]["reward/five/end"] == 10.0
