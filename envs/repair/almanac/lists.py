"""Searching, sorting and cutting lists."""

from __future__ import annotations

from typing import Any

__all__ = ["best_sum", "median", "merged", "parts", "place", "rotated"]


def place(numbers: list[int], number: int) -> int:
    """The first place in ascending numbers at which a number can be put."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


def merged(first: list[int], second: list[int]) -> list[int]:
    """Two ascending lists as one."""
    found, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        if first[i] <= second[j]:
            found.append(first[i])
            i += 1
        else:
            found.append(second[j])
            j += 1
    return found + first[i:] + second[j:]


def parts(items: list[Any], count: int) -> list[list[Any]]:
    """A list cut into so many parts whose lengths differ by at most 1; the longer ones come first."""
    length, more = divmod(len(items), count)
    found, at = [], 0
    for number in range(count):
        end = at + length + (1 if number < more else 0)
        found.append(items[at:end])
        at = end
    return found


def best_sum(numbers: list[int]) -> int:
    """The largest sum of numbers that stand next to each other; 0 for none."""
    best = current = 0
    for number in numbers:
        current = max(current + number, 0)
        best = max(best, current)
    return best


def rotated(items: list[Any], places: int) -> list[Any]:
    """A list whose items moved to the right, around its end."""
    if not items:
        return []
    cut = len(items) - places % len(items)
    return items[cut:] + items[:cut]


def median(numbers: list[float]) -> float:
    """The number in the middle, or the mean of the two there."""
    ordered, middle = sorted(numbers), len(numbers) // 2
    if len(numbers) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
