"""Chats in a Parquet file, in the format of verl's MultiTurnSFTDataset, with a note on the episodes behind them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragen_verl.config import RagenConfig
from ragen_verl.errors import RecipeError

__all__ = ["LAST_ONLY", "MESSAGES", "SUFFIX", "check_dialogue", "dialogue", "read", "write"]

SUFFIX = ".parquet"
MESSAGES, LAST_ONLY = "messages", "last_only"
"""Columns: the chat, and whether only its last message is to be learned (earlier rows have the other answers)."""
_NOTE = b"ragen_verl"


def dialogue(ragen: RagenConfig) -> dict[str, Any]:
    """The settings that have to be the same for making demonstrations and for learning from them.

    Returns:
        Key of the recipe -> its value as JSON: the training environments with their arguments in the first step, and
        the settings that decide the form of prompts and answers.
    """
    envs = [{"id": one.id, "name": one.tag, "kwargs": one.kwargs_at(1)} for one in ragen.train.envs]
    rollout = ragen.rollout
    said = {f"ragen.rollout.{name}": value for name, value in asdict(rollout.chat_protocol()).items()}
    context = {"ragen.rollout.context": [rollout.context, rollout.options]}
    return json.loads(json.dumps({"ragen.train.envs": envs, **said, **context}))


def write(chats: Iterable[Mapping[str, Any]], note: Mapping[str, Any], file: Path) -> int:
    """Write chats to a file.

    Args:
        chats: as `ragen_lab.convert.chats.sft` yields them, with `last_only`.
        note: data that JSON can hold; `read` returns it.
        file: the file to write; its folder is created.

    Returns:
        The number of chats.

    Raises:
        RecipeError: the file cannot be written.
    """
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist([dict(one) for one in chats])
    table = table.replace_schema_metadata({_NOTE: json.dumps(note, sort_keys=True)})
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, file)
    except OSError as error:
        raise RecipeError(f"{file} cannot be written: {error.strerror or error}.") from error
    return table.num_rows


def read(file: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The chats and the note of a file that `write` made.

    Raises:
        RecipeError: the file does not exist, is no Parquet file, or was not written by `write`.
    """
    import pyarrow
    from pyarrow import parquet

    if not file.is_file():
        raise RecipeError(f"There is no file {file}: make it with `ragen-verl collect RECIPE --out {file}`.")
    try:
        table = parquet.read_table(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise RecipeError(f"{file} is no Parquet file: {str(error).splitlines()[0].rstrip('.')}.") from error
    note = (table.schema.metadata or {}).get(_NOTE)
    if note is None or not {MESSAGES, LAST_ONLY} <= set(table.column_names):
        raise RecipeError(f"{file} does not say which prompts and answers it holds: make it with `ragen-verl collect`.")
    return table.to_pylist(), json.loads(note)


def check_dialogue(file: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse demonstrations whose environments, prompts or answers differ from those of a recipe.

    Args:
        file: the file with the demonstrations, for the message.
        theirs, ours: the result of `dialogue` at the making of the demonstrations, and for the recipe.

    Raises:
        RecipeError: naming the keys that differ.
    """
    differs: Sequence[str] = [key for key in ours if theirs.get(key) != ours[key]]
    if differs:
        key = differs[0]
        rest = f" (and other {', '.join(differs[1:])})" if differs[1:] else ""
        raise RecipeError(
            f"{file} was made with {key} {theirs.get(key)!r} and the recipe has {ours[key]!r}{rest}: make it again, or "
            "give both commands the same overrides."
        )
