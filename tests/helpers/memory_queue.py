"""verl's TransferQueue as a dict in memory: the same calls, ragged fields as nested tensors."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta


class MemoryQueue:
    """Rows by key; `asked` notes the fields of each read.

    Args:
        rows: key -> field -> value.
    """

    def __init__(self, rows: dict[str, dict[str, Any]]) -> None:
        self.rows = rows
        self.tags: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, ...]] = []

    def batch(self, partition_id: str = "train") -> KVBatchMeta:
        """All rows."""
        tags = [{"seq_len": len(row.get("input_ids", ()))} | self.tags.get(key, {}) for key, row in self.rows.items()]
        return KVBatchMeta(partition_id=partition_id, keys=list(self.rows), tags=tags)

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str] | None = None) -> TensorDict:
        """A field that no row has is left out; one that some rows lack raises KeyError."""
        names = select_fields or list(self.rows[keys[0]])
        self.asked.append(tuple(names))
        known = [name for name in names if any(name in self.rows[key] for key in keys)]
        columns = {name: [self.rows[key][name] for key in keys] for name in known}
        return TensorDict({name: _column(values) for name, values in columns.items()}, batch_size=len(keys))

    def kv_batch_put(
        self, keys: list[str], partition_id: str, fields: TensorDict | None = None, tags: list[dict] | None = None
    ) -> KVBatchMeta:
        """Adds rows, and fields to rows; tags stay as they were where none are given."""
        for key, tag in zip(keys, tags or (), strict=bool(tags)):
            self.tags[key] = tag
        for place, key in enumerate(keys):
            row = self.rows.setdefault(key, {})
            if fields is not None:
                row.update(fields[place].items())
        return KVBatchMeta(partition_id=partition_id, keys=list(keys), tags=[self.tags.get(key, {}) for key in keys])

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        """Forgets rows."""
        for key in keys:
            del self.rows[key]


def _column(values: list[Any]) -> Any:
    if not all(isinstance(value, torch.Tensor) for value in values):
        return NonTensorStack(*values)
    return torch.nested.as_nested_tensor(values, layout=torch.jagged) if values[0].dim() else torch.stack(values)
