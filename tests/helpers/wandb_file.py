"""Reads the file of an offline wandb run: LevelDB's log framing around wandb's own protobuf records.

wandb's reader in Python went away with 0.26; its messages (`wandb.proto`) are still there.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEAD = 32768, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def _payloads(data: bytes) -> Iterator[bytes]:
    """The payloads, put together where one is longer than its block."""
    at, parts = HEAD, b""  # the file begins with seven bytes of its own
    while at + HEAD <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEAD:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEAD])
        if kind not in (FULL, FIRST, MIDDLE, LAST):
            return
        parts += data[at + HEAD : at + HEAD + length]
        at += HEAD + length
        if kind in (FULL, LAST):
            yield parts
            parts = b""


def history(folder: Path) -> list[dict[str, Any]]:
    """What was logged in the one offline run under a folder, a dictionary a row, `_step` among its keys."""
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    rows = []
    for payload in _payloads(file.read_bytes()):
        record = Record.FromString(payload)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in items})
    return rows


def table(folder: Path, rows: list[dict[str, Any]], name: str = "val/generations") -> list[list[Any]]:
    """The rows of the newest table of this name, from the file that the history points to."""
    newest = next(row for row in reversed(rows) if any(key == name or key.startswith(f"{name}/") for key in row))
    path = newest[name]["path"] if name in newest else newest[f"{name}/path"]
    (file,) = folder.glob(f"wandb/offline-run-*/files/{path}")
    return json.loads(file.read_text())["data"]
