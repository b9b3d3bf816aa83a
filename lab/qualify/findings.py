"""The outcome of a part of the kit, and its file, which is written while the part runs so that nothing is lost."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from ragen_verl.runs import disk

__all__ = ["Outcome", "Status"]


class Status(str, Enum):
    """How a part ended; the file of a part that was stopped has `RUNNING`."""

    PASS = "PASS"
    FAIL = "FAIL"
    SKIPPED = "SKIPPED"
    RUNNING = "RUNNING"

    def __str__(self) -> str:
        return self.value


@dataclass
class Outcome:
    """A part's result, plain data throughout.

    Attributes:
        part: its name.
        status: how it ended.
        sentence: the result, or what is missing or went wrong.
        seconds: wall-clock time.
        tables: title -> rows, each a mapping name -> number or text.
        notes: the origin of numbers, formulas and tolerances.
        curve: points of a learning curve, (step, value) each.
    """

    part: str
    status: Status = Status.RUNNING
    sentence: str = ""
    seconds: float = 0.0
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    curve: list[tuple[float, float]] = field(default_factory=list)

    def row(self, table: str, **values: Any) -> None:
        """Add a row to a table."""
        self.tables.setdefault(table, []).append(values)

    def check(self, table: str, check: str, value: float, bound: float, why: str = "", least: bool = False) -> None:
        """Add a row that compares a value with a bound: at most, or at least. A value that is not finite fails."""
        ok = value >= bound if least else value <= bound  # False for nan
        self.row(
            table,
            check=check,
            value=value,
            bound=("at least " if least else "at most ") + f"{bound:.3g}",
            ok=ok,
            why=why,
        )

    def judge(self, passed: str) -> None:
        """Set PASS with a sentence, or FAIL with the names of the failed checks."""
        failed = [row["check"] for rows in self.tables.values() for row in rows if row.get("ok") is False]
        self.status = Status.FAIL if failed else Status.PASS
        self.sentence = f"{len(failed)} of the checks failed: {'; '.join(failed)}." if failed else passed

    def skip(self, sentence: str) -> None:
        """Set SKIPPED; the sentence says what is missing."""
        self.status, self.sentence = Status.SKIPPED, sentence

    def write(self, file: Path) -> None:
        """Write it to a file in one piece."""
        disk.replace(file, json.dumps(asdict(self), indent=1, default=str) + "\n")

    @classmethod
    def read(cls, file: Path) -> Outcome | None:
        """Read it from its file; None if it is missing or cannot be read."""
        try:
            found = json.loads(file.read_text("utf-8"))
            return cls(**{**found, "status": Status(found["status"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
