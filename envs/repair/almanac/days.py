"""Days of the calendar as (year, month, day)."""

from __future__ import annotations

__all__ = ["LENGTHS", "day_of_year", "days_between", "is_leap", "month_length", "next_day", "weekday"]

LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_leap(year: int) -> bool:
    """Whether a year has 366 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def month_length(year: int, month: int) -> int:
    """The number of days of a month, which counts from 1."""
    return 29 if month == 2 and is_leap(year) else LENGTHS[month - 1]


def day_of_year(year: int, month: int, day: int) -> int:
    """The number of a day in its year, from 1."""
    return sum(month_length(year, before) for before in range(1, month)) + day


def next_day(year: int, month: int, day: int) -> tuple[int, int, int]:
    """The day after."""
    if day < month_length(year, month):
        return year, month, day + 1
    if month < 12:
        return year, month + 1, 1
    return year + 1, 1, 1


def weekday(year: int, month: int, day: int) -> int:
    """The day of the week: Monday is 0."""
    past = year - 1
    total = 365 * past + past // 4 - past // 100 + past // 400 + day_of_year(year, month, day)
    return (total - 1) % 7


def days_between(first: tuple[int, int, int], last: tuple[int, int, int]) -> int:
    """How many days the last day is after the first, which is not after it."""
    count = 0
    while first < last:
        first = next_day(*first)
        count += 1
    return count
