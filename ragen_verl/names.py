"""Names that several parts of the package have to agree on: seams of verl, metrics, keys of the records."""

from __future__ import annotations

AGENT_LOOP = "ragen"
"""The agent loop in verl's registry."""

TRAINER = "ragen_sync"
"""The trainer in verl's registry: `trainer.v1.trainer_mode`."""

ESTIMATOR = "ragen_advantage"
"""All estimators of this package in verl's registry, where `gae` and `grpo` are verl's own."""

SUCCESS, RETURN, VALID, EPISODES = "success", "return", "valid", "episodes"
"""Metrics of a split over all its environments, under the split's prefix."""

RECURRING, UNSEEN = "recurring", "unseen_"
"""Of a held-out split: trajectories whose first observation training has met; prefix of the means over the others."""

TRAIN, HELD_OUT, GENERALISATION = "train", "val-env", "generalisation"
"""Prefixes of the metrics of the three splits, as RAGEN writes them."""

TRAIN_SUCCESS = f"{TRAIN}/{SUCCESS}"
HELD_OUT_SUCCESS = f"{HELD_OUT}/{SUCCESS}"
TRAIN_VALID = f"{TRAIN}/{VALID}"

REWARD_STD = "rollout/in_group_reward_std"
REWARD_MEAN = "rollout/in_group_reward_mean"
"""The in-group standard deviation and mean of raw returns, averaged over the groups of a step."""

STEP_SECONDS = "timing_s/step"
TEST_SECONDS = "timing_s/testing"
"""Wall-clock seconds of a step and of the held-out evaluation after it, as verl measures them."""
