"""How a step's rows are cut: into optimiser steps, over data-parallel ranks, into micro-batches.

verl wants every cut to come out even and fills up with rows of padding where it does not. The number of rows differs
from step to step (a filter, failed episodes), so the cuts follow the rows here, and padding is what evenness needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any


@dataclass(frozen=True)
class BatchSizes:
    """One pass of a model over the step's rows.

    Attributes:
        updates: optimiser steps per epoch; 1 where nothing is updated.
        micro: rows per rank that go through the model at once, at most; None where verl packs them by tokens.
    """

    updates: int = 1
    micro: int | None = None

    def fits(self, per_rank: int) -> bool:
        """Whether `per_rank` rows are whole updates of equal micro-batches, none below half the configured size."""
        if per_rank % self.updates:
            return False
        return self.micro is None or 2 * self.micro_batch(per_rank) >= min(self.micro, per_rank // self.updates)

    def micro_batch(self, per_rank: int) -> int | None:
        """Rows of one micro-batch: the largest divisor of an update's rows up to `micro`; None where verl packs."""
        if self.micro is None:
            return None
        rows = per_rank // self.updates
        return next(size for size in range(min(self.micro, rows), 0, -1) if rows % size == 0)


def rows_per_rank(rows: int, ranks: int, passes: Sequence[BatchSizes]) -> int:
    """The fewest rows per rank, padding included, that every pass can cut evenly."""
    return next(size for size in count(-(-rows // ranks)) if all(one.fits(size) for one in passes))


def fit_updates(rows: int, ranks: int, passes: Sequence[BatchSizes]) -> list[BatchSizes]:
    """The passes cut so that no update can see padding alone, whose loss is not defined.

    Where they could, micro-batches are halved first; only where single rows do not help are there fewer updates.

    Args:
        rows: rows to train on, at least one.
        ranks: data-parallel ranks.
        passes: the passes of a step with the updates that are wanted.
    """
    most = max(one.updates for one in passes)
    while True:
        fewer = [BatchSizes(min(one.updates, most), one.micro) for one in passes]
        largest = max(one.micro or 1 for one in passes)
        while True:
            whole = rows_per_rank(rows, ranks, fewer) * ranks
            if most == 1 or whole - rows < whole // most:
                return fewer
            if largest == 1:
                break
            largest = largest // 2
            fewer = [BatchSizes(one.updates, one.micro and min(one.micro, largest)) for one in fewer]
        most -= 1


class WorkerGroupProxy:
    """A worker group whose calls carry these values to the workers: what verl has no other way to be told.

    Args:
        group: verl's worker group.
        values: go into `extra_info` of the batch of every call (`global_batch_size`, `micro_batch_size_per_gpu`).
    """

    def __init__(self, group: Any, values: dict[str, Any]) -> None:
        self._group, self._values = group, values

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._group, name)

        def call(batch: Any, *args: Any, **kwargs: Any) -> Any:
            batch.extra_info.update(self._values)
            return method(batch, *args, **kwargs)

        return call
