"""Train/inference mismatch of a batch in verl's data plane: the trainer's log-probabilities against the engine's.

The comparison depends on the mode (verl 0.9.1, trainer/ppo/v1/trainer_base.py):

`algorithm.rollout_correction.bypass_mode: false`: verl computes `old_log_probs` with the trainer's weights before
the update, at every step. They are compared with `rollout_log_probs`, without a further pass.

`bypass_mode: true`: verl copies the engine's log-probabilities to `old_log_probs`, so the two are equal by
construction and cannot be compared; verl's `rollout_corr/*` and `training/rollout_probs_diff_*` are not logged either.
verl's `actor/ppo_kl` is a signed mean over all mini-batches that mixes the mismatch with the effect of the update, so
no rule reads it. Instead, every `bypass_freq` steps one pass of the actor over the batch gives the trainer's
log-probabilities.

In asynchronous training older weights sampled many rows, and theirs are meant to differ. Those rows are left out;
verl's `rollout_corr/*` have the distance of all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ragen_verl.diagnostics.mismatch import THRESHOLD, token_mismatch
from ragen_verl.training import data_plane
from ragen_verl.training.data_plane import Batch
from ragen_verl.training.staleness import fresh_rows

__all__ = ["batch_mismatch", "mismatch_of_rows"]


def batch_mismatch(
    batch: Batch, step: int, threshold: float = THRESHOLD, actor: Any = None, temperature: float = 1.0
) -> dict[str, float]:
    """`token_mismatch` of a batch in verl's data plane, to be called after verl's `_compute_old_log_prob`.

    Args:
        batch: the batch whose `old_log_probs` were written; verl's padding rows and rows of older weights do not count.
            The result is {} if no row is left.
        step: the step that trains on it.
        threshold: in nats.
        actor: for bypass mode, the trainer's `actor_rollout_wg`: one pass over the batch replaces the copied
            `old_log_probs`. It writes `log_probs` there, which nothing else in bypass mode reads.
        temperature: for bypass mode, `actor_rollout_ref.rollout.temperature`.
    """
    if actor is not None:
        settings = {"calculate_entropy": False, "compute_loss": False, "temperature": temperature}
        actor.compute_log_prob(replace(batch, extra_info={**batch.extra_info, **settings}))  # those of `batch` stay
    keys = fresh_rows(batch, step)
    if not keys:
        return {}
    ours = "old_log_probs" if actor is None else "log_probs"
    fields = [ours, "rollout_log_probs", "response_mask"]
    return mismatch_of_rows(data_plane.current.get(batch, keys, fields), threshold)


def mismatch_of_rows(data: Mapping[str, Sequence[Tensor]], threshold: float = THRESHOLD) -> dict[str, float]:
    """`token_mismatch` of rows of different lengths.

    Args:
        data: one tensor for each row: `rollout_log_probs` and `response_mask` over the response, and either
            `old_log_probs` over the response, or the model's `log_probs` over prompt and response, with each token's
            value at the position before it.
        threshold: in nats.
    """
    masks = data["response_mask"]
    if "old_log_probs" in data:
        ours = list(data["old_log_probs"])
    else:
        ours = [row[-len(mask) - 1 : -1] for row, mask in zip(data["log_probs"], masks, strict=True)]
    trainer, engine, sampled = (torch.cat(list(rows)) for rows in (ours, data["rollout_log_probs"], masks))
    return token_mismatch(trainer, engine, sampled, threshold)
