"""What all trainings share: the server that their workers are forked from, as the runs of a sweep share it."""

from __future__ import annotations

from collections.abc import Iterator

import forked
import pytest


@pytest.fixture(scope="session", autouse=True)
def forked_workers() -> Iterator[None]:
    with forked.forked_workers():
        yield
