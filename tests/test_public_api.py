"""The public interface: what `import ragen_verl` offers, what it loads, and the page about it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest
from paths import ROOT

import ragen_verl

HEAVY = ("torch", "verl", "gymnasium", "transformers", "ragen_lab")


def loaded_by(code: str) -> set[str]:
    """Which of the heavy packages a fresh process has loaded after this code."""
    told = f"{code}\nimport sys; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    return set(subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "code", ["import ragen_verl", "import ragen_verl.filter", "from ragen_verl import strategy, RecipeError"]
)
def test_what_needs_nothing_heavy_loads_nothing_heavy(code):
    assert loaded_by(code) == set()


def test_a_name_loads_what_it_needs_alone():
    assert loaded_by("from ragen_verl import Env, protocol, reward, context") == {"gymnasium"}
    assert "verl" not in loaded_by("from ragen_verl import estimator, indicator, policy_loss")


def test_every_public_name_is_there():
    assert all(getattr(ragen_verl, name) is not None for name in ragen_verl.__all__)
    with pytest.raises(AttributeError, match="no attribute 'estimater'"):
        ragen_verl.estimater  # noqa: B018


def test_types_and_page_name_exactly_the_public_names():
    stub = ast.parse((ROOT / "ragen_verl" / "__init__.pyi").read_text())
    typed = {
        (alias.asname, node.module) for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert typed == {(name, home) for home, names in ragen_verl._HOMES.items() for name in names}
    assert sorted(name for name, _ in typed) == sorted(ragen_verl.__all__)
    page = (ROOT / "docs" / "public_api.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(ragen_verl.__all__)
