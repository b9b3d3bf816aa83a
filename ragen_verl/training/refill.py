"""Refill: a step generates more groups until enough of them are informative, up to a limit.

A group is informative if the raw returns of its trajectories differ; otherwise no trajectory is better than another.
This is DAPO's dynamic sampling (arXiv 2503.14476, section 3.2), and it works with every filter of this package.

Groups are generated in rounds. All groups of a round are played at the same time, and the size of the next round is
computed when all of them have ended. So the number of groups in a step depends on their outcomes and not on their
speed, and a rerun plays the same seeds. The price is that every round waits for its slowest episode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from transfer_queue import KVBatchMeta

from ragen_verl.filter import group_scores
from ragen_verl.names import ROLLOUT
from ragen_verl.numerics import ZERO_STD

__all__ = ["Refill", "informative", "round_size"]


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


class Refill:
    """verl's replay buffer, with further groups added to a training sample.

    Args:
        buffer: verl's buffer; samples for validation are its own.
        submit: starts the generation of a number of groups, the next ones of the data stream.
        count: counts the informative groups among the rows of a batch.
        target: the number of informative groups that a step should have.
        limit: the number of groups that a step may generate in addition to its first ones.
    """

    def __init__(
        self,
        buffer: Any,
        *,
        submit: Callable[[int], Any],
        count: Callable[[KVBatchMeta], int],
        target: int,
        limit: int,
    ) -> None:
        self.buffer, self.submit, self.count, self.target, self.limit = buffer, submit, count, target, limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self.buffer, name)

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict]:
        """Take verl's sample of `batch_size` groups, and further rounds until `target` groups are informative.

        Returns:
            The rows of all groups, informative or not, and verl's metrics with `rollout/groups_generated` and
            `rollout/refill_rounds` added.
        """
        batch, metrics = self.buffer.sample(global_steps, partition_id, batch_size)
        if partition_id == "val":
            return batch, metrics
        generated, rounds, found = batch_size, 0, self.count(batch)
        while found < self.target and (room := batch_size + self.limit - generated) > 0:
            size = round_size(self.target - found, found, generated, min(batch_size, room))
            self.submit(size)
            more, _ = self.buffer.sample(global_steps, partition_id, size)
            generated, rounds, found = generated + size, rounds + 1, found + self.count(more)
            batch = _joined(batch, more)
        return batch, metrics | {f"{ROLLOUT}/groups_generated": generated, f"{ROLLOUT}/refill_rounds": rounds}


def _joined(first: KVBatchMeta, second: KVBatchMeta) -> KVBatchMeta:
    return KVBatchMeta(
        partition_id=first.partition_id,
        keys=[*first.keys, *second.keys],
        tags=[*first.tags, *second.tags],
        fields=first.fields,
        extra_info=first.extra_info,
    )
