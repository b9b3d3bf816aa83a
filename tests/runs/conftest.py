"""For tests of runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from forked import without_server


@pytest.fixture(autouse=True)
def no_fork_server() -> Iterator[None]:
    """What a test starts in the place of verl is a process of its own, whatever another test has left behind."""
    with without_server():
        yield
