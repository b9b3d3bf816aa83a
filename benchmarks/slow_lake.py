"""FrozenLake whose actions take half a second to five, as a browser or a remote service would; a plugin of recipes.

How long is drawn once an episode: 0.5 s times a Pareto variable of shape 1.5, 5 s at most. Half of the episodes take up
to 0.8 s an action, one in thirty takes 5.
"""

from __future__ import annotations

import time

import numpy as np
from ragen_envs.frozen_lake import FrozenLake

from ragen_verl.env import register

LEAST, MOST, SHAPE = 0.5, 5.0, 1.5


def latency(random: np.random.Generator) -> float:
    """Seconds that every action of an episode takes."""
    return min(MOST, LEAST * (1 + random.pareto(SHAPE)))


class SlowLake(FrozenLake):
    """FrozenLake at the speed of a distant service."""

    def reset(self, *, seed=None, options=None):
        first = super().reset(seed=seed, options=options)
        self._latency = latency(self.dynamics)
        return first

    def step(self, action: str):
        time.sleep(self._latency)
        return super().step(action)


register("SlowLake-v0", SlowLake)
