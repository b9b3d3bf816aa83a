"""For all tests."""

import sys

# setuptools puts its own distutils in the place of Python's and refuses when something imported that first; vLLM
# imports setuptools late, so in one long process success would depend on the tests before
import setuptools  # noqa: F401

# and its vendored packages, which it adds to the path, would pass for installed ones in importlib.metadata
sys.path[:] = [path for path in sys.path if not path.endswith("setuptools/_vendor")]
