"""The table of docs/patches.md: `python -m ragen_verl.patches.page` prints it."""

from __future__ import annotations

from collections.abc import Iterator

from ragen_verl.patches.table import PATCHES

__all__ = ["table"]


def table() -> str:
    """The table in Markdown, one row a patch."""
    return "\n".join(_rows())


def _rows() -> Iterator[str]:
    yield "| `RAGEN_VERL_WITHOUT=` | where | what fails or is lost without it | upstream | dead from | test |"
    yield "|---|---|---|---|---|---|"
    for one in PATCHES:
        where = "CPU" if one.cpu else "all"
        cells = (f"`{one.name}`", where, one.why, one.upstream, one.dead, f"`{one.test.replace('::', ' ')}`")
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(table())
