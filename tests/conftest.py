"""For all tests."""

import sys

import pytest

# setuptools puts its own distutils in the place of Python's and refuses when something imported that first; vLLM
# imports setuptools late, so in one long process success would depend on the tests before
import setuptools  # noqa: F401

# and its vendored packages, which it adds to the path, would pass for installed ones in importlib.metadata
sys.path[:] = [path for path in sys.path if not path.endswith("setuptools/_vendor")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Trainings first: they take longest, and the other processes have the rest to do meanwhile."""
    items.sort(key=lambda item: item.get_closest_marker("train") is None)
