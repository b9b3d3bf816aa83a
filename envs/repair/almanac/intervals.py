"""Sets of whole numbers as lists of intervals [start, end): ascending, not empty, with gaps between them."""

from __future__ import annotations

__all__ = ["Interval", "contains", "gaps", "intersect", "merge", "size"]

Interval = tuple[int, int]


def merge(intervals: list[Interval]) -> list[Interval]:
    """The same numbers in ascending intervals with gaps between them."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def size(intervals: list[Interval]) -> int:
    """How many numbers there are."""
    return sum(end - start for start, end in merge(intervals))


def contains(intervals: list[Interval], number: int) -> bool:
    """Whether a number is in one of them."""
    return any(start <= number < end for start, end in intervals)


def intersect(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """The numbers that are in both."""
    found, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if start < end:
            found.append((start, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return found


def gaps(intervals: list[Interval], start: int, end: int) -> list[Interval]:
    """The numbers of [start, end) that are in none of them."""
    free, at = [], start
    for left, right in merge(intervals):
        if left > at and at < end:
            free.append((at, min(left, end)))
        at = max(at, right)
    if at < end:
        free.append((at, end))
    return free
