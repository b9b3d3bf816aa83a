"""What all trainings share: the server that their workers are forked from, as the runs of a sweep share it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ragen_verl.cpu import fork_server


@pytest.fixture(scope="session", autouse=True)
def forked_workers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in (fork_server.ADDRESS, fork_server.PYTHON):
            patch.setenv(name, "")
            patch.delenv(name)
        server = fork_server.start()
        yield
        server.kill()
