"""Refill: a step generates more groups until enough of them are informative, within a bound.

A group is informative where the raw returns of its trajectories differ: without that there is nothing to prefer (DAPO's
dynamic sampling, arXiv 2503.14476, section 3.2, over any filter of this package). Rounds are whole: the groups of a
round are in flight together, and the next round is sized when all have ended. How many groups a step takes then depends
on what was played and never on how fast, so that a rerun plays the same seeds; the price is the slowest episode of each
round.
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
    """Groups with at least two trajectories that count and whose raw returns differ."""
    return int((group_scores(returns, groups, excluded).std > ZERO_STD).sum())


def round_size(missing: int, found: int, generated: int, most: int) -> int:
    """Groups of the next round: as many as `missing` ones take at the step's share of informative groups.

    The share is (found + 1) / (generated + 1), which stays above 0.

    Args:
        missing: informative groups that the step still wants, at least 1.
        found: informative groups so far.
        generated: all groups so far.
        most: the engine's and the bound's limit, at least 1.
    """
    return min(most, math.ceil(missing * (generated + 1) / (found + 1)))


class Refill:
    """verl's replay buffer, whose training sample is topped up.

    Args:
        buffer: verl's buffer; validation goes to it unchanged.
        submit: starts the generation of a number of new groups, the next ones of the data stream.
        count: informative groups among the rows of a batch.
        target: informative groups that a step should have.
        limit: groups that a step may generate beyond the first ones.
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
        """verl's sample of `batch_size` groups, and further rounds until `target` informative ones are there.

        Returns:
            All rows, informative or not, and verl's metrics with `rollout/groups_generated` and
            `rollout/refill_rounds`.
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
