"""The sampler of all trainers, which verl builds from `trainer.v1.sampler.custom_sampler` in every mode.

It is verl's buffer, polled more often than every two seconds, with the refill. In asynchronous training it hands over
the oldest groups first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from ragen_verl.training.oldest_groups import OldestGroups
from ragen_verl.training.refill import Refill

__all__ = ["AsynchronousSampler", "SynchronousSampler", "sampler"]

_POLL_SECONDS = 0.02


class SynchronousSampler(Refill, ReplayBuffer):
    """Hands over the groups of a step when all have ended."""


class AsynchronousSampler(Refill, OldestGroups):
    """Hands over the oldest groups that have ended."""


def sampler(*, trainer_mode: str, sampler_kwargs: Mapping[str, Any], **verls: Any) -> Refill:
    """Build the sampler of a mode; the arguments are those that verl passes to its custom samplers."""
    kind = SynchronousSampler if trainer_mode == "sync" else AsynchronousSampler
    verls |= {"trainer_mode": trainer_mode, "sampler_kwargs": sampler_kwargs}
    return kind(**sampler_kwargs, poll_interval=_POLL_SECONDS, gen_batch_size=1, **verls)
