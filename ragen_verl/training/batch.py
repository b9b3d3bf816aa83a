"""The trajectories behind the rows of a batch: verl has one row per training sample, a trajectory has one or more.

verl's key of a row is `{uid}_{session}_{index}`: a group is a uid, a trajectory a uid and a session. Everything that
ranks, counts or averages works on trajectories; everything that trains works on rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta

from ragen_verl.rollout.trajectory import RECORD


@dataclass(frozen=True)
class Episodes:
    """The trajectories of one batch, by seed and member, so that their order does not depend on which ended first.

    Attributes:
        records: `Trajectory.record()` of each.
        groups: the uid of each one's group.
        rows: the indices of each one's rows in the batch, in the order of the keys' indices.
    """

    records: tuple[dict[str, Any], ...]
    groups: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]

    @property
    def returns(self) -> list[float]:
        """R(tau) of each trajectory."""
        return [record["return"] for record in self.records]

    @property
    def excluded(self) -> list[bool]:
        """Whether environment or engine of each trajectory failed."""
        return [record["excluded"] for record in self.records]

    @property
    def lengths(self) -> list[float]:
        """Sampled tokens of each trajectory."""
        return [record["metrics"]["response_length"] for record in self.records]

    def rows_of(self, kept: Iterable[int]) -> list[int]:
        """The rows of these trajectories, in the trajectories' order and not in that of their arrival."""
        return [row for index in sorted(kept) for row in self.rows[index]]


def rows_by_trajectory(keys: Sequence[str]) -> dict[tuple[str, str], list[int]]:
    """(uid, session) -> its rows in the order of the keys' indices."""
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row, key in enumerate(keys):
        uid, session, index = key.rsplit("_", 2)
        found.setdefault((uid, session), []).append((int(index), row))
    return {name: [row for _, row in sorted(rows)] for name, rows in found.items()}


def read(batch: KVBatchMeta) -> Episodes:
    """The trajectories of a batch, with their records from TransferQueue."""
    found = rows_by_trajectory(batch.keys)
    first = [batch.keys[rows[0]] for rows in found.values()]
    data = tq.kv_batch_get(keys=first, partition_id=batch.partition_id, select_fields=["extra_fields"])
    return arrange(found, [record_of(fields) for fields in list(data["extra_fields"])])


def record_of(extra_fields: Mapping[str, Any]) -> dict[str, Any]:
    """The trajectory's record from the `extra_fields` of one of its rows."""
    return json.loads(extra_fields["reward_extra_info"][RECORD])


def real_rows(batch: KVBatchMeta) -> list[int]:
    """The indices of the rows that belong to trajectories: all but those that verl fills a batch up with."""
    return [row for row, tag in enumerate(batch.tags) if not (tag or {}).get("is_padding", False)]


def arrange(found: dict[tuple[str, str], list[int]], records: Sequence[dict[str, Any]]) -> Episodes:
    """Episodes from `rows_by_trajectory` and the record of each, sorted by seed and member."""
    joined = zip(found.items(), records, strict=True)
    ordered = sorted(joined, key=lambda one: (one[1]["seed"], one[1]["rollout_index"], one[0][0]))
    return Episodes(
        records=tuple(record for _, record in ordered),
        groups=tuple(uid for ((uid, _), _), _ in ordered),
        rows=tuple(tuple(rows) for (_, rows), _ in ordered),
    )


def entropies(batch: KVBatchMeta, episodes: Episodes) -> list[float]:
    """Mean negative log-probability of each trajectory's sampled tokens, as the engine reported it, in nats.

    That is what is known of the entropy before any model pass: its value on the tokens that were drawn. 0 where
    nothing was sampled.
    """
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["rollout_log_probs", "response_mask"]
    )
    return mean_surprise(list(data["rollout_log_probs"].unbind()), list(data["response_mask"].unbind()), episodes.rows)


def mean_surprise(log_probs: Sequence[Any], masks: Sequence[Any], rows: Sequence[Sequence[int]]) -> list[float]:
    """`entropies` from tensors of shape (tokens,) per row."""
    sums = [float(-(log_prob * mask).sum()) for log_prob, mask in zip(log_probs, masks, strict=True)]
    tokens = [float(mask.sum()) for mask in masks]
    totals = [(sum(sums[row] for row in mine), sum(tokens[row] for row in mine)) for mine in rows]
    return [surprise / sampled if sampled else 0.0 for surprise, sampled in totals]


def keep_rows(batch: KVBatchMeta, rows: list[int]) -> KVBatchMeta:
    """The batch with these rows only, in this order; the others are cleared, which verl does for its own rows alone."""
    kept = set(rows)
    if dropped := [key for row, key in enumerate(batch.keys) if row not in kept]:
        tq.kv_clear(keys=dropped, partition_id=batch.partition_id)
    return KVBatchMeta(
        partition_id=batch.partition_id,
        keys=[batch.keys[row] for row in rows],
        tags=[batch.tags[row] for row in rows],
        fields=batch.fields,
        extra_info=batch.extra_info,
    )


def scale_advantages(batch: KVBatchMeta, factor: float) -> None:
    """Multiplies the advantages that the actor's update will read."""
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages"])
    data["advantages"] = data["advantages"] * factor
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=data)
