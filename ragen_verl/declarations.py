"""The entry points of installed packages, even if the file of one of them cannot be read."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, distributions, entry_points

__all__ = ["declarations"]


def declarations(group: str) -> tuple[Iterable[EntryPoint], list[str]]:
    """Return the entry points in `group`, and a sentence about each package whose entry points cannot be read."""
    try:
        return entry_points(group=group), []
    except (ValueError, TypeError):  # a byte that is not UTF-8, a line without "=": then nothing is given
        pass
    found: dict[tuple[str, str], EntryPoint] = {}
    faults = []
    for package in distributions():
        try:
            for point in package.entry_points.select(group=group):
                found.setdefault((package.name, point.name), point)
        except (ValueError, TypeError) as error:
            where = getattr(package, "_path", "a package")
            faults.append(f"The entry points of {where} cannot be read ({error}): install that package again.")
    return list(found.values()), faults
