"""Train/inference mismatch: how far the trainer's log-probabilities of sampled tokens are from the engine's.

The two run different kernels on the same weights. In float32 they agree to 1e-5, in bfloat16 to about 1e-2 per token. A
larger difference means that token ids were encoded again, weights did not arrive, or temperatures differ.
"""

from __future__ import annotations

import torch

from ragen_verl.names import MISMATCH

__all__ = ["THRESHOLD", "token_mismatch"]

THRESHOLD = 0.5  # nats: a ratio of 1.65, which every clip range of PPO cuts


def token_mismatch(
    old_log_probs: torch.Tensor,
    rollout_log_probs: torch.Tensor,
    response_mask: torch.Tensor,
    threshold: float = THRESHOLD,
) -> dict[str, float]:
    """Absolute differences of log-probabilities over sampled tokens.

    Args:
        old_log_probs: the trainer's, in nats, float, any shape.
        rollout_log_probs: the engine's, of the same shape.
        response_mask: of the same shape; non-zero on sampled tokens. Other tokens are never read.
        threshold: nats.

    Returns:
        `mismatch/mean` and `mismatch/max`: mean and maximum of |trainer - engine| over the sampled tokens where it is
        finite; `mismatch/share`: share of sampled tokens where it is above `threshold` or not finite;
        `mismatch/tokens`: the number of sampled tokens. Without sampled tokens only `mismatch/tokens`; without a finite
        difference no mean and maximum.

    Raises:
        ValueError: the shapes differ.
    """
    if not old_log_probs.shape == rollout_log_probs.shape == response_mask.shape:
        shapes = [tuple(one.shape) for one in (old_log_probs, rollout_log_probs, response_mask)]
        raise ValueError(f"shapes {shapes} of log-probabilities and mask are not one batch")
    sampled = response_mask.bool()
    distance = (old_log_probs[sampled].double() - rollout_log_probs[sampled].double()).abs()
    metrics = {f"{MISMATCH}/tokens": float(distance.numel())}
    if not distance.numel():
        return metrics
    metrics[f"{MISMATCH}/share"] = (~(distance <= threshold)).double().mean().item()
    finite = distance[torch.isfinite(distance)]
    if finite.numel():
        metrics |= {f"{MISMATCH}/mean": finite.mean().item(), f"{MISMATCH}/max": finite.max().item()}
    return metrics
