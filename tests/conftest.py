"""For all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any

import forked
import pytest

# setuptools puts its own distutils in the place of Python's and refuses when something imported that first; vLLM
# imports setuptools late, so in one long process success would depend on the tests before
import setuptools  # noqa: F401
from hypothesis import settings
from read_once import read_once
from xdist.scheduler import LoadFileScheduling

from ragen_verl import switch

# and its vendored packages, which it adds to the path, would pass for installed ones in importlib.metadata
sys.path[:] = [path for path in sys.path if not path.endswith("setuptools/_vendor")]


# what is tested is a process of a training
os.environ.setdefault(switch.SWITCH, "1")

# a job in a shell's background ignores Ctrl-C, and so would the processes that tests send it to
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# among a million objects of imported packages, looking for cycles every 700 objects takes a tenth of the time
gc.set_threshold(50_000, 20, 20)

# A busy machine is no fault of a test, and a commit's tests are the same wherever they run. To look further:
# `pytest --hypothesis-profile new-examples`.
settings.register_profile("new-examples", deadline=None)
settings.register_profile("same-examples", deadline=None, derandomize=True)
settings.load_profile("same-examples")

TRAININGS = "tests/trainings/"
"""Two Ray clusters on one machine clash, so all that starts one is in this folder and runs in one process."""


def pytest_configure(config: pytest.Config) -> None:
    """Where processes share the tests, they share the server too from which verl's workers are forked."""
    if config.getoption("numprocesses", None):  # not in the processes themselves
        forked.share()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Trainings first: they take longest, and the other processes have the rest to do meanwhile."""
    items.sort(key=lambda item: not item.nodeid.startswith(TRAININGS))


def pytest_collection_finish() -> None:
    """What tests compute is small: a second thread would take a core from another process and help nobody."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    if "hydra" in sys.modules:
        read_once()


class TrainingsTogether(LoadFileScheduling):
    """A process takes a file at a time; the trainings are as one file."""

    def _split_scope(self, nodeid: str) -> str:
        return TRAININGS if nodeid.startswith(TRAININGS) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TrainingsTogether | None:
    """The scheduling of `--dist loadfile`, with the trainings together; other choices keep their own."""
    return TrainingsTogether(config, log) if config.getoption("dist") == "loadfile" else None
