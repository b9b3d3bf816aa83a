"""Random play, for tests."""

from __future__ import annotations

import numpy as np

from ragen_verl.env import Env


def random_plan(env: Env, rng: np.random.Generator, n: int) -> list[str]:
    """Return `n` actions drawn with `rng`: uniformly from the names, or as `env.random_action` does for free text."""
    if env.actions is None:
        return [env.random_action(rng) for _ in range(n)]
    return [env.actions[int(index)] for index in rng.integers(len(env.actions), size=n)]
