"""What the trainer with a separate engine checks when the cluster is there, and how it passes verl's own check."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig
from recipe_composition import changed, composed
from refusals import refused
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from ragen_verl.training import trainer_modes
from ragen_verl.training.trainer_modes import RagenDisaggregatedTrainer

ENGINE = "actor_rollout_ref.rollout"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    resources = {"CPU": 16.0}
    monkeypatch.setattr(trainer_modes.ray, "cluster_resources", lambda: resources)
    return resources


def test_too_few_devices_are_refused_before_ray_waits(cluster: dict[str, float]) -> None:
    recipe = composed("nano/frozen_lake", "mode=disaggregated")
    cluster["GPU"] = 1.0
    with refused("has 1: lower them, or use mode=async"):
        trainer_modes._check_devices(recipe)
    cluster["GPU"] = 2.0
    trainer_modes._check_devices(recipe)
    with refused("needs 1 + 4 devices"):
        trainer_modes._check_devices(changed(recipe, f"{ENGINE}.nnodes=2", f"{ENGINE}.n_gpus_per_node=2"))


def test_a_step_of_several_updates_passes_verls_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe = composed("nano/frozen_lake", "mode=disaggregated", f"ragen.run.dir={tmp_path}")
    seen = []
    verls = PPOTrainer.__init__

    def seeing(self: PPOTrainer, config: DictConfig) -> None:
        seen.append(mini_batch(config))
        verls(self, config)

    monkeypatch.setattr(PPOTrainer, "__init__", seeing)
    assert mini_batch(recipe) < recipe.data.train_batch_size
    RagenDisaggregatedTrainer(recipe)
    assert seen == [recipe.data.train_batch_size]
    assert mini_batch(recipe) == composed("nano/frozen_lake").actor_rollout_ref.actor.ppo_mini_batch_size


def mini_batch(config) -> int:
    return config.actor_rollout_ref.actor.ppo_mini_batch_size
