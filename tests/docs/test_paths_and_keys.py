"""The pages name files, folders and recipe keys that exist, and so do docstrings that name a page."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT

PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("recipes/**/*.md"),
        *ROOT.glob("examples/*/*.md"),
    ]
)
TOP = ("ragen_verl", "lab", "envs", "recipes", "tests", "benchmarks", "docs", "examples", "requirements")
SOURCES = [path for name in TOP for path in ROOT.glob(f"{name}/**/*.py")]
SITE = Path(importlib.util.find_spec("verl").origin).parents[1]
HOMES = (ROOT, *(ROOT / name for name in TOP), SITE, SITE / "verl")
"""A path begins in the repository, in one of its folders, in the site-packages, or in verl."""
NAMES = {path.name for name in TOP for path in ROOT.glob(f"{name}/**/*")}
PLACE = re.compile(
    r"(?<![\w/.:{<*-])((?:[\w.-]+/)*[\w.-]+\.(?:py|md|ya?ml|json|lock|j2|png)|(?:[\w.-]+/)+)(?![\w/*<{-])"
)
KEY = re.compile(r"(?<![\w.:/@-])ragen((?:\.(?!yaml)[a-z_]+)+)(?![\w(/-]|\.\w)")
FREE = {"ragen.diagnostics.indicators", "ragen.diagnostics.causes", "ragen.rewards"}
"""What stands below these is an option of a plugin."""
OWN = {
    "ragen.rollout.max_result",
    "ragen.advantage.sharpness",
    "ragen.filter.factor",
    "ragen.filter.count",
    "ragen.rollout.observed",
}
"""Options of the plugins that the pages write."""


def missing(text: str, folder: Path) -> list[str]:
    """The paths in a text that lead nowhere, and the bare names of modules that no file has.

    The reader's own files (`my_*/`, `a.py`) and the files of a run, whose names have no folder, are not looked at.
    """
    found = []
    for place in PLACE.findall(text):
        first, slash, _ = place.partition("/")
        if first.startswith("my_") or (place.endswith("/") and first not in TOP):
            continue
        if slash and not any((home / place).exists() for home in (*HOMES, folder)):
            found.append(place)
        if not slash and place.endswith(".py") and place not in {*NAMES, "a.py"}:
            found.append(place)
    return found


def keys(block: Mapping[str, Any], prefix: str = "ragen") -> Iterator[str]:
    """The names of all keys of a recipe's block."""
    for name, value in block.items():
        yield f"{prefix}.{name}"
        if isinstance(value, Mapping):
            yield from keys(value, f"{prefix}.{name}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert missing(page.read_text("utf-8"), page.parent) == []


@pytest.mark.parametrize("text", ["`ragen_verl/mixture.py`", "lab/none/", "`trainer/ppo/nothing.py:12`", "(gone.py)"])
def test_a_missing_file_is_seen(text: str) -> None:
    assert missing(text, ROOT)


def test_pages_that_sources_name_exist() -> None:
    named = {name for path in SOURCES for name in re.findall(r"\bdocs/[\w-]+\.\w+", path.read_text("utf-8"))}
    assert named and [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_recipe_keys_that_pages_name_exist() -> None:
    known = {*keys(yaml.safe_load((ROOT / "recipes" / "ragen.yaml").read_text("utf-8"))["ragen"]), *OWN}
    wrong = {}
    for page in PAGES:
        for rest in KEY.findall(page.read_text("utf-8")):
            key = f"ragen{rest}"
            if key not in known and not any(key.startswith(f"{one}.") for one in FREE):
                wrong.setdefault(page.name, set()).add(key)
    assert wrong == {}
