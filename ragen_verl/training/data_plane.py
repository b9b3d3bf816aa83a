"""Everything that touches verl's data plane, in which workers leave the contents of a step's rows for each other.

In verl 0.9 the data plane is TransferQueue, a key-value store, and this is the only module that imports it. The rest of
the package knows the names of rows and reads, writes and removes their contents through `current`. A `Batch` is such
names (`keys`) with notes on each (`tags`), their partition and settings for a call (`extra_info`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta as Batch

__all__ = ["Batch", "DataPlane", "current", "joined", "nested"]


class DataPlane:
    """The contents of rows by field, in TransferQueue; another data plane has the same three methods."""

    def get(self, batch: Batch, keys: Sequence[str], fields: Sequence[str]) -> dict[str, list[Any]]:
        """Read rows of the batch's partition.

        Returns:
            field -> one value for each key, in this order: a tensor without padding, or what else the field holds. A
            field that no row has is left out; one that only some of the rows have is an error.
        """
        data = tq.kv_batch_get(keys=list(keys), partition_id=batch.partition_id, select_fields=list(fields))
        found = {name: data[name] for name in fields if name in data}
        return {name: list(values.unbind() if isinstance(values, Tensor) else values) for name, values in found.items()}

    def put(self, batch: Batch, fields: Mapping[str, Sequence[Tensor]]) -> None:
        """Write fields, one tensor for each of the batch's keys."""
        columns = TensorDict({name: nested(rows) for name, rows in fields.items()}, batch_size=len(batch))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=columns)

    def clear(self, batch: Batch, keys: Sequence[str]) -> None:
        """Remove rows of the batch's partition with all their fields."""
        tq.kv_clear(keys=list(keys), partition_id=batch.partition_id)


current = DataPlane()
"""The data plane of this process."""


def joined(first: Batch, second: Batch) -> Batch:
    """The rows of both; partition and settings of the first."""
    return replace(first, keys=[*first.keys, *second.keys], tags=[*first.tags, *second.tags])


def nested(rows: Sequence[Tensor]) -> Tensor:
    """Rows of different lengths as one tensor, in the form in which verl passes them to workers."""
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)
