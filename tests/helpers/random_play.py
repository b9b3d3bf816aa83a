"""Random play, for tests."""

from __future__ import annotations

import numpy as np

from ragen_verl.env import Env
from ragen_verl.env.core import random_action


def random_plan(env: Env, rng: np.random.Generator, n: int) -> list[str]:
    """Return `n` actions drawn with `rng`: uniformly from the names, or as `env.random_action` does for free text."""
    return [random_action(env, rng) for _ in range(n)]
