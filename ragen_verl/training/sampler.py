"""The sampler that verl builds for every trainer (`trainer.v1.sampler.custom_sampler`), with dynamic sampling.

A step generates more groups until enough of them are informative, up to a limit. A group is informative if the raw
returns of its trajectories differ; otherwise no trajectory is better than another. This is DAPO's dynamic sampling
(arXiv 2503.14476, section 3.2), and it works with every filter of this package.

Groups are generated in rounds. All groups of a round are played at the same time, and the size of the next round is
computed when all of them have ended. So the number of groups in a step depends on their outcomes and not on their
speed, and a rerun plays the same seeds. The price is that every round waits for its slowest episode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from ragen_verl.filter import group_scores
from ragen_verl.filter.scores import ZERO_STD
from ragen_verl.names import ROLLOUT
from ragen_verl.training.batch import TrajectoryReader
from ragen_verl.training.data_plane import Batch, joined

__all__ = ["DynamicSampling", "informative", "round_size", "sampler"]

_POLL_SECONDS = 0.02  # verl's own is two seconds


def informative(returns: list[float], groups: list, excluded: list[bool]) -> int:
    """The number of groups with at least two trajectories that are not excluded and whose raw returns differ."""
    return int((group_scores(returns, groups, excluded).std > ZERO_STD).sum())


def round_size(missing: int, found: int, generated: int, most: int) -> int:
    """The number of groups in the next round: as many as are expected to contain `missing` informative ones.

    The share of informative groups is estimated as (found + 1) / (generated + 1), which is never 0.

    Args:
        missing: how many informative groups the step still lacks, at least 1.
        found: informative groups so far.
        generated: all groups so far.
        most: the highest number of groups in a round, at least 1.
    """
    return min(most, math.ceil(missing * (generated + 1) / (found + 1)))


class DynamicSampling:
    """Adds further groups to the training samples of a buffer of verl's; it comes before the buffer among the bases.

    Args:
        target: the number of informative groups that a step should have; None adds none.
        limit: the number of groups that a step may generate in addition to its first ones.
        verls: the buffer's own arguments; its `refill_fn` starts the generation of a number of groups, the next ones of
            the data stream.
    """

    def __init__(self, *, target: int | None, limit: int, **verls: Any) -> None:
        super().__init__(**verls)
        self.target, self.limit, self.reader = target, limit, TrajectoryReader()

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Batch, dict]:
        """Take verl's sample of `batch_size` groups, and further rounds until `target` groups are informative.

        Returns:
            The rows of all groups, informative or not, and verl's metrics with `rollout/groups_generated` and
            `rollout/dynamic_sampling_rounds` added.
        """
        batch, metrics = super().sample(global_steps, partition_id, batch_size)  # type: ignore[misc]
        if partition_id == "val" or self.target is None:
            return batch, metrics
        generated, rounds, found = batch_size, 0, self.count(batch)
        while found < self.target and (room := batch_size + self.limit - generated) > 0:
            size = round_size(self.target - found, found, generated, min(batch_size, room))
            self.refill_fn(size)  # type: ignore[attr-defined]
            more, _ = super().sample(global_steps, partition_id, size)  # type: ignore[misc]
            generated, rounds, found = generated + size, rounds + 1, found + self.count(more)
            batch = joined(batch, more)
        return batch, metrics | {f"{ROLLOUT}/groups_generated": generated, f"{ROLLOUT}/dynamic_sampling_rounds": rounds}

    def count(self, batch: Batch) -> int:
        """The number of informative groups among the rows of a batch."""
        played = self.reader.read(batch)
        return informative(played.returns, list(played.groups), played.excluded)


def sampler(*, trainer_mode: str, sampler_kwargs: Mapping[str, Any], **verls: Any) -> DynamicSampling:
    """Build the sampler of a mode; the arguments are those that verl passes to its custom samplers."""
    buffer: type = ReplayBuffer  # hands over the groups of a step when all have ended
    if trainer_mode != "sync":
        from ragen_verl.training.oldest_groups import OldestGroups

        buffer = OldestGroups
    kind: Any = type("Sampler", (DynamicSampling, buffer), {})
    verls |= {"trainer_mode": trainer_mode, "sampler_kwargs": sampler_kwargs}
    return kind(**sampler_kwargs, poll_interval=_POLL_SECONDS, gen_batch_size=1, **verls)
