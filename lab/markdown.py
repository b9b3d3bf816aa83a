"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["table"]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int | None = None) -> list[str]:
    """The lines of a table: the header, the rule below it, and one line for each row.

    Args:
        columns: the cells of the header.
        rows: as many cells each.
        numbers_from: the first of the columns that are aligned to the right; None aligns none of them so.
    """
    left = len(columns) if numbers_from is None else numbers_from
    rule = "---|" * left + "---:|" * (len(columns) - left)
    return [_line(columns), f"|{rule}", *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
