"""The choice of the adapter for an id of gymnasium's registry."""

from __future__ import annotations

from typing import Any

from ragen_envs.adapters.gymnasium import MINIGRID, GymnasiumEnv
from ragen_envs.adapters.minigrid import MiniGridEnv

__all__ = ["build"]


def build(id: str, **kwargs: Any) -> GymnasiumEnv:
    """Return the environment behind "gymnasium:`id`"; those of MiniGrid are drawn as "minigrid:`id`" draws them."""
    if id.rpartition(":")[2].startswith(MINIGRID):
        return MiniGridEnv(id, **kwargs)
    return GymnasiumEnv(id, **kwargs)


build.names = GymnasiumEnv.names  # type: ignore[attr-defined]
