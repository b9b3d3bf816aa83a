"""Tables of questions: local files and datasets of the hub, read through `datasets` and shared by all instances.

`datasets` is imported only when a table is loaded.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from ragen_envs.common.shared import share

from ragen_verl.errors import MissingExtra, RecipeError, adding_package

__all__ = ["Split", "Table", "check_split", "in_split", "load"]

Split = Literal["train", "val"]

_READERS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
_VAL_ONE_IN = 10


def check_split(name: str, split: str | None) -> None:
    """Raise RecipeError unless `split` is "train", "val" or None; `name` is that of the environment."""
    if split not in ("train", "val", None):
        raise RecipeError(f"{name}'s split must be 'train', 'val' or left out, not {split!r}.")


def in_split(key: str, split: Split | None) -> bool:
    """Tell whether the row with the content `key` belongs to `split`: a tenth is "val", the rest "train"; None is all.

    It depends on the content alone, so two rows with the same content are never in different splits.
    """
    return split is None or (zlib.crc32(key.encode("utf-8", "surrogatepass")) % _VAL_ONE_IN == 0) == (split == "val")


class Table:
    """Rows of a dataset, by number; every copy, pickled or not, shares the rows of its process.

    Args:
        source: the arguments of `load`.
        rows: the `datasets.Dataset`.
        indices: numbers of its rows that belong to the split.
    """

    def __init__(self, source: tuple, rows: Any, indices: np.ndarray) -> None:
        self.source = source
        self.rows = rows
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, number: int) -> Mapping[str, Any]:
        """Return row `number` modulo the number of rows: consecutive seeds, up to that number, give different rows."""
        return self.rows[int(self.indices[number % len(self.indices)])]

    def __deepcopy__(self, memo: dict) -> Table:
        return self

    def __reduce__(self) -> tuple:
        return load, self.source


def load(
    dataset: str,
    config: str | None = None,
    hub_split: str = "train",
    split: Split | None = None,
    key: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    first: int | None = None,
    keep: Callable[..., bool] | None = None,
) -> Table:
    """Return the table `dataset`, loaded once per process.

    Args:
        dataset: a .csv, .json, .jsonl or .parquet file, or an id of the hub, or a folder laid out like one.
        config: the hub dataset's configuration.
        hub_split: which of the hub dataset's own splits to read; a file has only "train".
        split: keep the rows whose key lies in this split; None keeps all.
        key: columns that identify the content; () for all `columns`.
        columns: columns that must be present; () for all columns of the table.
        first: read only this many rows, from the first on.
        keep: a function of a module that gets the values of the `key` columns and tells whether to keep the row.

    Raises:
        MissingExtra: `datasets` is not installed.
        RecipeError: the table cannot be read, lacks a column or has no row.
    """
    source = (str(dataset), config, hub_split, split, tuple(key), tuple(columns), first, keep)
    return share(_load, *source).value  # hundreds of episodes start at once, and only one of them reads


def _load(
    dataset: str,
    config: str | None,
    hub_split: str,
    split: Split | None,
    key: tuple[str, ...],
    columns: tuple[str, ...],
    first: int | None,
    keep: Callable[..., bool] | None,
) -> Table:
    rows = _read(dataset, config, hub_split)
    missing = [name for name in (*columns, *key) if name not in rows.column_names]
    if missing:
        raise RecipeError(f"{dataset!r} has no column {missing[0]!r}: it has {', '.join(rows.column_names)}.")
    rows = rows.select_columns(list(dict.fromkeys((*columns, *key)))) if columns else rows
    rows = rows.select(range(min(first, len(rows)))) if first is not None else rows
    indices = np.arange(len(rows))
    if split is not None or keep is not None:
        named = rows.select_columns(list(key)) if key else rows
        inside: list[bool] = []
        for batch in named.iter(10_000):  # in batches, since half a million single rows would take much longer
            inside += [
                in_split(_identity(values), split) and (keep is None or keep(*values))
                for values in zip(*batch.values(), strict=True)
            ]
        indices = indices[np.asarray(inside, dtype=bool)]
    if not len(indices):
        raise RecipeError(f"{dataset!r} has no row{f' in the split {split!r}' if split else ''}: give another table.")
    return Table((dataset, config, hub_split, split, key, columns, first, keep), rows, indices)


def _identity(values: tuple) -> str:
    """Return a name of a row that consists of its values; the order inside a list does not count."""
    return repr([sorted(map(str, value)) if isinstance(value, list) else str(value) for value in values])


def _read(dataset: str, config: str | None, hub_split: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtra(f"The table {dataset!r} is read with datasets: run {adding_package('datasets')}.") from None
    reader = _READERS.get(Path(dataset).suffix.lower())
    if reader and not Path(dataset).is_file():
        raise RecipeError(f"There is no file {dataset!r}: give the path of a table, or an id of the hub.")
    try:
        if reader:
            return datasets.load_dataset(reader, data_files={"train": dataset}, split="train")
        return datasets.load_dataset(dataset, config, split=hub_split)
    except Exception as error:  # datasets raises its own errors, and those of pyarrow, the hub and the network
        cause = " ".join(str(error).split())[:300]
        raise RecipeError(f"The table {dataset!r} cannot be read ({type(error).__name__}: {cause}).") from error
