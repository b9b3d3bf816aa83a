"""Two FSDP2 ranks over gloo against one: the same log-probabilities, gradients and weights from the same rows."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from paths import HELPERS

pytestmark = [pytest.mark.train, pytest.mark.slow]


def run(folder: Path, ranks: int) -> list[dict]:
    """What each rank found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    files = [folder / f"{ranks}-{rank}.json" for rank in range(ranks)]
    place = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = [
        subprocess.Popen(
            [sys.executable, HELPERS / "ranked_update.py", file],
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, file in enumerate(files)
    ]
    for process in started:
        _, errors = process.communicate(timeout=500)
        assert process.returncode == 0, errors[-3000:]
    return [json.loads(file.read_text()) for file in files]


def test_two_ranks_update_as_one(tmp_path: Path) -> None:
    (alone,), both = run(tmp_path, 1), run(tmp_path, 2)
    assert both[0]["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-4)
    assert len(alone["grad_norm"]) == 2 and alone["grad_norm"][0] > 0
    rows = [row for row in alone["before"] if int(row) < 7]
    assert len(rows) == 7
    before, after = (both[0][when] | both[1][when] for when in ("before", "after"))
    change = max(distance(alone["before"][row], alone["after"][row]) for row in rows)
    assert change > 1e-3
    for row in rows:
        assert before[row] == pytest.approx(alone["before"][row], abs=1e-5)
        assert distance(after[row], alone["after"][row]) < 0.02 * change


def distance(one: list[float], other: list[float]) -> float:
    """The largest difference of two rows."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))
