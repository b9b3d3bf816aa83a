"""Every preset, context and probe through verl, Ray and vLLM: two steps each, `make test-slow`."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver import trained
from paths import ROOT

pytestmark = [pytest.mark.train, pytest.mark.slow]

PRESETS = sorted(path.stem for path in (ROOT / "recipes" / "algorithm").glob("*.yaml"))
SMALL = [
    "trainer.total_training_steps=2",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "ragen.train.envs.0.groups=8",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
]
PROBES = [
    "ragen.diagnostics.mutual_information.enabled=true",
    "ragen.diagnostics.mutual_information.share=0.2",
    "ragen.diagnostics.mutual_information.every=1",
    "ragen.diagnostics.gradient_signal.enabled=true",
    "ragen.diagnostics.gradient_signal.every=1",
    "ragen.diagnostics.gradient_signal.buckets=2",
]
RECOMPUTED = "algorithm.rollout_correction.bypass_mode=false"
VARIANTS = {
    **{f"preset-{name}": [f"algorithm={name}"] for name in PRESETS},
    "window": ["ragen.rollout.context=window", "ragen.rollout.window=2"],
    "single_turn-gigpo": ["algorithm=gigpo", "ragen.rollout.context=single_turn"],
    "window-critic": ["algorithm=starpo_s", "ragen.rollout.context=window", "ragen.rollout.window=2"],
    "turn_grpo-turn_mean": [
        "algorithm.adv_estimator=turn_grpo",
        "actor_rollout_ref.actor.policy_loss.loss_mode=ragen_turn_mean",
    ],
    "turn_gae": ["algorithm=starpo_ppo", "algorithm.adv_estimator=turn_gae"],
    "rloo": ["algorithm.adv_estimator=rloo"],
    "reinforce_plus_plus": ["algorithm.adv_estimator=reinforce_plus_plus"],
    "env_tokens": [
        "ragen.rollout.loss_on_env_tokens=true",
        "ragen.rollout.shared_group_rng=true",
        RECOMPUTED,
        "actor_rollout_ref.rollout.calculate_log_probs=false",
    ],
    "probes-recomputed": [*PROBES, RECOMPUTED],
    "probes-kl": [*PROBES, "algorithm=starpo_grpo"],
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_steps(variant: str, tmp_path: Path) -> None:
    rows = trained("nano/frozen_lake", tmp_path / "run", *SMALL, *VARIANTS[variant])
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert row["rollout/filter_kept_count"] >= 1
        assert row["actor/grad_norm"] > 0
        assert row["verdict/warnings"] == 0
        assert ("critic/vf_loss" in row) == (variant in WITH_CRITIC)
        if "probes" in variant:
            assert row["mi/retrieval_chance"] > 0 and row["grad_norm/all/task"] > 0
            assert ("grad_norm/all/kl" in row) == (variant == "probes-kl")
            assert row["mismatch/mean"] < 1e-4 if "mismatch/mean" in row else row["step"] == 2


WITH_CRITIC = {
    "preset-bilevel",
    "preset-ragen2_dapo",
    "preset-ragen2_ppo",
    "preset-starpo_ppo",
    "preset-starpo_s",
    "window-critic",
    "turn_gae",
}
