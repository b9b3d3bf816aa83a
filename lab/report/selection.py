"""The choice of a long run's trajectories for the page: a number that a browser can open, and the interesting ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragen_lab.report.curves import marks
from ragen_lab.report.reading import Run, all_files

__all__ = ["LEAST", "LIMIT", "LONGEST", "chosen", "shortened"]

LIMIT = 2000
LONGEST = 20_000
"""The highest number of characters of one text in the page; the trajectories' file has the rest."""
LEAST = 64
"""The number of trajectories of a step, where not all fit."""


def chosen(run: Run, limit: int = LIMIT) -> tuple[dict[tuple[str, int], list[dict[str, Any]]], int]:
    """The trajectories for the page, in whole groups.

    If all fit, all are taken. Otherwise about `LEAST` trajectories are taken from each of as many steps as fit: the
    first and last step of each split, the steps with warnings, and others evenly between. Of each step the first groups
    are taken, so that the held-out states are the same at every step.

    Args:
        run: the run.
        limit: about how many; the last step that fits has at least one whole group.

    Returns:
        (split, step) -> its trajectories, and the number of all trajectories of the run.
    """
    sizes = {(split, step): _size(run, split, step, file) for split, step, file in all_files(run)}
    total = sum(sizes.values())
    if total <= limit:
        return {place: run.records(*place) for place in sorted(sizes)}, total
    share, left = max(LEAST, limit // len(sizes)), limit
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for place in _by_interest(list(sizes), {mark.step for mark in marks(run)}):
        if left <= 0:
            break
        found[place] = _first_groups(run.records(*place), min(share, left))
        left -= len(found[place])
    return dict(sorted(found.items())), total


def shortened(text: str) -> str:
    """A text for the page, cut at `LONGEST` characters with a remark."""
    more = len(text) - LONGEST
    return text if more <= 0 else f"{text[:LONGEST]}\n[{more:,} more characters are in the trajectories' file]"


def _first_groups(records: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The first groups with together at most `count` trajectories, at least one."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["env"], record["seed"]), []).append(record)
    found: list[dict[str, Any]] = []
    for group in groups.values():
        if found and len(found) + len(group) > count:
            break
        found += group
    return found


def _by_interest(places: Sequence[tuple[str, int]], warned: set[int]) -> list[tuple[str, int]]:
    """First and last step of each split, then those with a warning, then the middle of the largest gap, and so on."""
    splits: dict[str, list[int]] = {}
    for split, step in sorted(places):
        splits.setdefault(split, []).append(step)
    ends = [(split, steps[end]) for split, steps in splits.items() for end in (-1, 0)]
    alarms = [place for place in places if place[1] in warned]
    ranked = [_bisected(steps, split) for split, steps in splits.items()]
    middles = [one[i] for i in range(max(map(len, ranked))) for one in ranked if i < len(one)]
    return list(dict.fromkeys([*ends, *alarms, *middles]))


def _bisected(steps: Sequence[int], split: str) -> list[tuple[str, int]]:
    """All steps: first the ends, then the middles of smaller and smaller intervals."""
    order, stretches = [steps[0], steps[-1]], [(0, len(steps) - 1)]
    while stretches:
        low, high = stretches.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            order.append(steps[middle])
            stretches += [(low, middle), (middle, high)]
    return [(split, step) for step in order]


def _size(run: Run, split: str, step: int, file: Path) -> int:
    if run.policy:
        return len(run.records(split, step))
    return sum(bool(line.strip()) for line in file.read_bytes().split(b"\n")) if file.is_file() else 0
