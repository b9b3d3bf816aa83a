"""The trajectories behind the rows of a batch: verl has one row per training sample, a trajectory has one or more.

verl's key of a row is `{uid}_{session}_{index}`: a group is a uid, a trajectory a uid and a session. Everything that
ranks, counts or averages works on trajectories; everything that trains works on rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ragen_verl.rollout.trajectory import RECORD, rounded
from ragen_verl.training import data_plane
from ragen_verl.training.data_plane import Batch

__all__ = [
    "RowKey",
    "RowTurns",
    "TrajectoryBatch",
    "TrajectoryReader",
    "entropies",
    "fill_tokens",
    "indices",
    "keep_rows",
    "padding_rows",
    "weigh_advantages",
]


class RowKey(NamedTuple):
    """The parts of verl's key of a row: group, trajectory in the group, position of the row in the trajectory."""

    uid: str
    session: str
    index: int  # type: ignore[assignment]  # a tuple has a method of this name

    @classmethod
    def parse(cls, key: str) -> RowKey:
        """Parse `{uid}_{session}_{index}`."""
        uid, session, index = key.rsplit("_", 2)
        return cls(uid, session, int(index))


class RowTurns(NamedTuple):
    """The turns that a row trains on: their numbers in the trajectory, from 1, and the last column of each."""

    numbers: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True)
class TrajectoryBatch:
    """The trajectories of a step, read once; sorted by seed and rollout index, not by the time of their end.

    Attributes:
        records: `Trajectory.record()` of each.
        groups: the uid of each one's group.
        keys: verl's keys of each one's rows, in the rows' order.
        turns: key of a row -> the turns that it trains on.
    """

    records: tuple[dict[str, Any], ...]
    groups: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    turns: Mapping[str, RowTurns] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def returns(self) -> list[float]:
        """R(tau) of each trajectory."""
        return [record["return"] for record in self.records]

    @property
    def excluded(self) -> list[bool]:
        """Whether a trajectory cannot be learned from: environment or engine failed, or it has no turn.

        A trajectory has no turn if its first prompt does not fit.
        """
        return [record["excluded"] or not record["turns"] for record in self.records]

    @property
    def lengths(self) -> list[float]:
        """Sampled tokens of each trajectory."""
        return [record["metrics"]["response_length"] for record in self.records]

    @property
    def row_keys(self) -> list[str]:
        """The keys of all rows."""
        return [key for keys in self.keys for key in keys]

    def select(self, indices: Iterable[int]) -> TrajectoryBatch:
        """These trajectories, in the order of the batch."""
        chosen = sorted(set(indices))
        return TrajectoryBatch(
            records=tuple(self.records[index] for index in chosen),
            groups=tuple(self.groups[index] for index in chosen),
            keys=tuple(self.keys[index] for index in chosen),
            turns={key: self.turns[key] for index in chosen for key in self.keys[index] if key in self.turns},
        )

    def ends(self, keys: Sequence[str]) -> list[tuple[int, ...]]:
        """The last column of each turn of these rows; verl's padding rows have no turns."""
        return [self.turns[key].ends if key in self.turns else () for key in keys]

    def states(self, keys: Sequence[str]) -> list[list[str]]:
        """The observation before each turn of these rows; verl's padding rows have no turns."""
        records = dict(zip((RowKey.parse(keys[0])[:2] for keys in self.keys), self.records, strict=True))
        return [
            [records[RowKey.parse(key)[:2]]["turns"][number - 1]["state"] for number in self.turns[key].numbers]
            if key in self.turns
            else []
            for key in keys
        ]


class TrajectoryReader:
    """A reader of a step's rows in the data plane; it reads each once, for dynamic sampling and for the filter."""

    def __init__(self) -> None:
        self._rows: dict[str, Mapping[str, Any]] = {}
        self._records: dict[tuple[str, str], dict[str, Any]] = {}

    def clear(self) -> None:
        """Forget the step."""
        self._rows.clear()
        self._records.clear()

    def read(self, batch: Batch) -> TrajectoryBatch:
        """The trajectories of a batch without padding."""
        if new := [key for key in batch.keys if key not in self._rows]:
            data = data_plane.current.get(batch, new, ["extra_fields"])
            self._rows.update(zip(new, data["extra_fields"], strict=True))
            for key in new:
                if text := self._rows[key].get(RECORD):  # on the first row of each trajectory
                    self._records[RowKey.parse(key)[:2]] = json.loads(text)
        found: dict[tuple[str, str], list[str]] = {}
        for key in sorted(batch.keys, key=lambda key: RowKey.parse(key).index):
            found.setdefault(RowKey.parse(key)[:2], []).append(key)
        records = {name: self._records[name] for name in found}
        ordered = sorted(found, key=lambda name: (records[name]["seed"], records[name]["rollout_index"], name[0]))
        rows = {key: self._rows[key] for key in batch.keys}
        return TrajectoryBatch(
            records=tuple(records[name] for name in ordered),
            groups=tuple(uid for uid, _ in ordered),
            keys=tuple(tuple(found[name]) for name in ordered),
            turns={key: RowTurns(tuple(row["turns"]), tuple(row["turn_ends"])) for key, row in rows.items()},
        )


def indices(keys: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Group, trajectory and position in the trajectory of each row, from verl's keys.

    Returns:
        Three (rows,) int64 tensors; groups and trajectories are numbered in order of appearance.
    """
    groups: dict[str, int] = {}
    trajectories: dict[tuple[str, str], int] = {}
    rows = []
    for key in map(RowKey.parse, keys):
        group = groups.setdefault(key.uid, len(groups))
        rows.append((group, trajectories.setdefault(key[:2], len(trajectories)), key.index))
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 3).unbind(1)


def padding_rows(batch: Batch) -> list[bool]:
    """Whether each row is padding that verl added to the batch."""
    return [bool((tag or {}).get("is_padding", False)) for tag in batch.tags]


def entropies(batch: Batch, played: TrajectoryBatch) -> list[float]:
    """Mean negative log-probability of each trajectory's sampled tokens, as the engine reported it, in nats.

    It is the only estimate of the entropy before a model pass: its value on the sampled tokens. 0 where nothing was
    sampled.
    """
    data = data_plane.current.get(batch, played.row_keys, ["rollout_log_probs", "response_mask"])
    masks = dict(zip(played.row_keys, data["response_mask"], strict=True))
    log_probs = dict(zip(played.row_keys, data["rollout_log_probs"], strict=True))
    found = []
    for keys in played.keys:
        surprise = -sum(float((log_probs[key] * masks[key]).sum()) for key in keys)
        sampled = sum(int(masks[key].sum()) for key in keys)
        found.append(surprise / sampled if sampled else 0.0)
    return found


def keep_rows(batch: Batch, keys: Sequence[str]) -> Batch:
    """The batch with only these rows, in this order. The others are cleared here, since verl clears only its own."""
    if dropped := list(set(batch.keys) - set(keys)):
        data_plane.current.clear(batch, dropped)
    return batch.select_keys(list(keys))


def fill_tokens(batch: Batch, trained: TrajectoryBatch) -> None:
    """Complete the tokens of the records (`Trajectory.record`) with the mask and the advantages of the update.

    Args:
        batch: rows whose advantages are known.
        trained: the trajectories that the update uses; their records are changed in place.
    """
    fields = ["advantages", "response_mask"]
    data = data_plane.current.get(batch, trained.row_keys, fields)
    rows = dict(zip(trained.row_keys, zip(*(data[one] for one in fields), strict=True), strict=True))
    for record, keys in zip(trained.records, trained.keys, strict=True):
        for key in keys:
            advantages, mask = (row.tolist() for row in rows[key])
            for number, end in zip(*trained.turns[key], strict=True):
                tokens = record["turns"][number - 1]["tokens"]
                columns = slice(end + 1 - len(tokens["ids"]), end + 1)
                tokens["mask"] = [int(one) for one in mask[columns]]
                tokens["advantages"] = [rounded(one) for one in advantages[columns]]


def weigh_advantages(batch: Batch, weights: Callable[[Tensor], Tensor]) -> None:
    """Multiply the advantages that the actor's update will read.

    Args:
        batch: the rows.
        weights: (response mask, (rows, T)) -> factors, (rows, T).
    """
    data = data_plane.current.get(batch, batch.keys, ["advantages", "response_mask"])
    factors = weights(pad_sequence(data["response_mask"], batch_first=True))
    rows = [one * row[: len(one)] for one, row in zip(data["advantages"], factors, strict=True)]
    data_plane.current.put(batch, {"advantages": rows})
