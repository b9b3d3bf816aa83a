"""Updates whose loss or gradient is not finite: verl skips them and only writes a line to its log.

One such update among many costs nothing. Where every step has one the run learns nothing more, and is ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ragen_verl.names import NOT_FINITE, UPDATE

__all__ = ["STEPS", "FiniteUpdates", "NotFiniteError"]

STEPS = 5
"""Number of consecutive steps after which a run is ended; a single bad batch does not last that long."""


class NotFiniteError(ArithmeticError):
    """The updates of `STEPS` consecutive steps were not finite.

    Args:
        step: the last of them.
        names: the metrics that were not finite in it.
    """

    def __init__(self, step: int, names: tuple[str, ...]) -> None:
        super().__init__(
            f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} no finite number in {STEPS} steps in a row, "
            f"the last of them {step}: continue from an earlier checkpoint with a lower learning rate, or look for the "
            "term of the loss that divides by nothing."
        )


class FiniteUpdates:
    """Counts the consecutive steps in which an update was not finite; rebuilt by replaying metrics.jsonl."""

    def __init__(self) -> None:
        self._row = 0
        self._names: tuple[str, ...] = ()

    def measure(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """`update/not_finite` of a step's metrics; nothing for a step without an update."""
        there = [name for name in UPDATE if name in metrics]
        self._names = tuple(name for name in there if not math.isfinite(float(metrics[name])))
        return {NOT_FINITE: float(len(self._names))} if there else {}

    def see(self, metrics: Mapping[str, Any]) -> None:
        """Take in a step's metrics, those of `measure` among them; a step without an update is ignored."""
        if NOT_FINITE in metrics:
            self._row = self._row + 1 if metrics[NOT_FINITE] else 0

    def check(self, step: int) -> None:
        """End a run that cannot learn.

        Raises:
            NotFiniteError: see above.
        """
        if self._row >= STEPS:
            raise NotFiniteError(step, self._names or (NOT_FINITE,))
