"""Synthetic metrics of a run: healthy, and with one failure put on top."""

from __future__ import annotations

import numpy as np

GROUPS, MEMBERS = 8, 16


def healthy(seed: int, steps: int = 120, start: float = 0.2, end: float = 0.8, decline: float = 1.2) -> list[dict]:
    """Noisy improvement: success rises, entropy, thoughts and the in-group standard deviation decline with it.

    `decline` says how far entropy comes down, by a factor of e for 1. Success is a count over 8 groups of 16 whose
    levels differ; the rest has noise of the size that real runs have.
    """
    random = np.random.default_rng(seed)
    lines = []
    for step in range(1, steps + 1):
        done = step / max(steps, 60)
        rate = start + (end - start) * done**0.7
        levels = random.beta(3 * rate + 1e-9, 3 * (1 - rate) + 1e-9, GROUPS)
        wins = random.binomial(MEMBERS, levels) / MEMBERS
        lines.append(
            {
                "step": step,
                "train/success": float(wins.mean()),
                "train/valid": float(random.binomial(500, 0.97) / 500),
                "rollout/in_group_reward_mean": float(wins.mean()) - 0.02,
                "rollout/in_group_reward_std": float(np.mean(np.sqrt(wins * (1 - wins)))),
                "rollout/selected_return_excess": float(random.normal(0, 0.05)),
                "rollout/selected_return_excess_error": 0.05,
                "actor/entropy": float(1.2 * np.exp(-decline * done + random.normal(0, 0.06))),
                "actor/grad_norm": float(np.exp(random.normal(0, 0.5)) * (40 if random.random() < 0.01 else 1)),
                "update/not_finite": 0.0,
                "echo/reasoning_words": float(45 * np.exp(-1.0 * done + random.normal(0, 0.1))),
                "echo/format_valid": float(random.binomial(500, 0.98) / 500),
                "echo/distinct_within": float(0.7 - 0.2 * done + random.normal(0, 0.03)),
                "echo/shared": float(0.2 + 0.3 * done + random.normal(0, 0.03)),
                "train/calls": float(2 + rate + 0.1 * np.cos(7 * step)),
                "train/turns_without_call": float(0.1 + 0.03 * np.sin(11 * step)),
                "rollout/staleness_mean": float(1 + 0.3 * np.sin(step)),
                "mismatch/mean": float(abs(random.normal(0.01, 0.002))),
                "mismatch/share": float(random.binomial(20000, 0.0005) / 20000),
            }
        )
        if step % 5 == 1:
            lines[-1] |= {
                "mi/retrieval_chance": 1 / 64,
                "mi/retrieval_accuracy": float(random.binomial(64, 0.9 - 0.15 * done) / 64),
                "mi/conditional_entropy": float(1.0 - 0.3 * done + random.normal(0, 0.03)),
            }
        if step % 10 == 0:
            lines[-1]["val-env/success"] = float(random.binomial(128, rate) / 128)
    return lines
