"""Names that several parts of the package have to agree on: seams of verl, metrics, keys of the records."""

from __future__ import annotations

__all__ = [
    "ACTOR",
    "AGENT_LOOP",
    "ASYNC_TRAINER",
    "CHECKPOINT",
    "CONTEXT_FULL",
    "CRITIC",
    "DISAGGREGATED_TRAINER",
    "DISTINCT_WITHIN",
    "EARLY_STOPPED",
    "ECHO",
    "EFFECTIVE_SAMPLES",
    "EMPTY_STEP",
    "ENTROPY",
    "EPISODES",
    "ESTIMATOR",
    "FAILED",
    "FIRST_ERROR",
    "FORMAT_VALID",
    "GENERALISATION",
    "GRADIENT_NORM",
    "GRADIENT_SIGNAL",
    "HELD_OUT",
    "HELD_OUT_SUCCESS",
    "MISMATCH",
    "MIXED_WEIGHTS",
    "MUTUAL_INFORMATION",
    "NOT_FINITE",
    "PARTS",
    "REASONING_WORDS",
    "RECURRING",
    "RETURN",
    "RETURN_EXCESS",
    "RETURN_EXCESS_ERROR",
    "REWARD_MEAN",
    "REWARD_STD",
    "ROLLOUT",
    "SAMPLER",
    "SECONDS",
    "SFT_LOSS",
    "SFT_LR",
    "SHARED",
    "STALENESS_MAX",
    "STALENESS_MEAN",
    "STEP_SECONDS",
    "SUCCESS",
    "SWEEPS",
    "TEST_SECONDS",
    "TRAIN",
    "TRAINER",
    "TRAIN_SUCCESS",
    "TRAIN_VALID",
    "UNSEEN",
    "UPDATE",
    "VALID",
    "is_file",
]

AGENT_LOOP = "ragen"
"""The agent loop in verl's registry."""

TRAINER, ASYNC_TRAINER, DISAGGREGATED_TRAINER = "ragen_sync", "ragen_async", "ragen_disaggregated"
SAMPLER = "ragen_verl.training.sampler"
"""The trainers in verl's registry: `trainer.v1.trainer_mode`."""

ESTIMATOR = "ragen_advantage"
"""All estimators of this package in verl's registry, where `gae` and `grpo` are verl's own."""

CHECKPOINT = "global_step_"
"""verl's name of a checkpoint's folder, before the step."""

SUCCESS, RETURN, VALID, EPISODES = "success", "return", "valid", "episodes"
"""Metrics of a split over all its environments, under the split's prefix."""

PARTS = "reward/"
"""Before the name of a part of the reward, in the metrics of an environment."""

RECURRING, UNSEEN = "recurring", "unseen_"
"""On a held-out split: trajectories whose first observation occurred in training; the prefix of means over others."""

FAILED, FIRST_ERROR = "train/excluded_ratio", "train/first_error"
"""Share of a step's episodes that ended in an error, and the text of the first one, in metrics.jsonl alone."""

TRAIN, HELD_OUT, GENERALISATION = "train", "val-env", "generalisation"
"""Prefixes of the metrics of the three splits, as RAGEN writes them."""

TRAIN_SUCCESS = f"{TRAIN}/{SUCCESS}"
HELD_OUT_SUCCESS = f"{HELD_OUT}/{SUCCESS}"
TRAIN_VALID = f"{TRAIN}/{VALID}"
CONTEXT_FULL = f"{TRAIN}/stop/context_full"
"""Share of a step's trajectories that are cut since no further turn fits."""

SFT_LOSS, SFT_LR = f"{TRAIN}/loss", f"{TRAIN}/lr"
"""Metrics of verl's supervised trainer for an update: its loss in nats per answer token; the learning rate after it."""

ROLLOUT = "rollout"
"""Prefix of the metrics of the filter and of dynamic sampling."""

REWARD_STD, REWARD_MEAN = f"{ROLLOUT}/in_group_reward_std", f"{ROLLOUT}/in_group_reward_mean"
"""The in-group standard deviation and mean of raw returns, averaged over the groups of a step."""

SECONDS = "timing_s"
STEP_SECONDS, TEST_SECONDS = f"{SECONDS}/step", f"{SECONDS}/testing"
"""verl's prefix of wall-clock times in seconds; the times of a step and of the held-out evaluation after it."""

EMPTY_STEP = f"{ROLLOUT}/empty_after_filter"
"""1 where the filter left no group of a step, otherwise 0."""

RETURN_EXCESS, RETURN_EXCESS_ERROR = f"{ROLLOUT}/selected_return_excess", f"{ROLLOUT}/selected_return_excess_error"
"""The mean return of the kept groups minus that of all groups, and its standard error."""

STALENESS_MEAN, STALENESS_MAX = f"{ROLLOUT}/staleness_mean", f"{ROLLOUT}/staleness_max"
MIXED_WEIGHTS = f"{ROLLOUT}/mixed_weights"
"""Of asynchronous steps: updates between sampling and training; share of trajectories that several weights sampled."""

EFFECTIVE_SAMPLES = "rollout_corr/rollout_is_eff_sample_size"
"""verl's share of the samples that is left under importance weights, 1 where all weigh the same."""

ACTOR = "actor"
ENTROPY, GRADIENT_NORM = f"{ACTOR}/entropy", f"{ACTOR}/grad_norm"
"""verl's prefix of a policy update's metrics; its entropy in nats per kept token, its gradient norm before clipping."""

CRITIC = "critic"
UPDATE = tuple(f"{model}/{name}" for model in (ACTOR, CRITIC) for name in ("loss", "grad_norm"))
"""What verl reports of the updates of a step, averaged over them."""

NOT_FINITE = "update/not_finite"
"""How many of `UPDATE` are not finite in a step; 0 if all is well."""

ECHO = "echo"
FORMAT_VALID, REASONING_WORDS = f"{ECHO}/format_valid", f"{ECHO}/reasoning_words"
DISTINCT_WITHIN, SHARED = f"{ECHO}/distinct_within", f"{ECHO}/shared"
"""Echo Trap indicators; `diagnostics.echo_trap` defines each."""

MUTUAL_INFORMATION = "mi"
"""Prefix of RAGEN-2's mutual-information proxies, whose names `diagnostics.mutual_information.measure` gives."""

MISMATCH = "mismatch"
"""Prefix of the distance between the trainer's and the engine's log-probabilities."""

GRADIENT_SIGNAL = "grad_norm"
"""Prefix of gradient norms by groups of equal reward variance."""

EARLY_STOPPED = "early_stopped"
"""Prefix of RAGEN-2's early-stop rules: 1 for the one that ended the run."""

SWEEPS = ("tables", "experiments")
"""Folders of recipes/ with sweeps: at the papers' sizes, and at a size for two CPU cores."""


def is_file(recipe: str) -> bool:
    """Whether a recipe is given as a path, not as a name."""
    return recipe.endswith((".yaml", ".yml"))
