"""The keys of recipes/ragen.yaml: some recipe sets each, or its comment says why it is there all the same."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from paths import ROOT

from ragen_verl.config import advantage, rollout

BASE = ROOT / "recipes" / "ragen.yaml"
OTHERS = [file for file in ROOT.glob("recipes/**/*.yaml") if file != BASE]
WHY = "# no recipe sets it: "


def flat(block: object, path: str = "") -> Iterator[str]:
    """The full names of the leaves; an empty block is one."""
    if not (isinstance(block, dict) and block):
        yield path
        return
    for key, value in block.items():
        yield from flat(value, f"{path}.{key}" if path else str(key))


def said(file: Path = BASE) -> set[str]:
    """The keys under a comment that says why no recipe sets them."""
    found, above, place = set(), "", []
    for line in file.read_text().splitlines():
        if key := re.match(r"^( *)(\w+):", line):
            place = [*place[: len(key[1]) // 2], key[2]]
            if WHY in above:
                found.add(".".join(place))
            above = ""
        elif line.lstrip().startswith("#"):
            above += line
    return found


def test_each_key_is_set_by_a_recipe_or_says_why_not() -> None:
    keys = set(flat(yaml.safe_load(BASE.read_text())["ragen"], "ragen"))
    texts = [file.read_text() for file in OTHERS]
    given = {key for text in texts for key in flat(yaml.safe_load(text))}
    given |= {key for key in keys for text in texts if re.search(rf"{re.escape(key)}\s*[=:]", text)}  # overrides
    unset = {key for key in keys if not any(one == key or one.startswith(f"{key}.") for one in given)}
    assert said() == unset


def test_the_options_that_are_null_at_first_are_known_by_name() -> None:
    base = yaml.safe_load(BASE.read_text())["ragen"]
    fields = {one.name for kind in (advantage.Advantage, rollout.Rollout) for one in dataclasses.fields(kind)}
    for module, block in ((advantage, base["advantage"]), (rollout, base["rollout"])):
        assert {*module._SHIPPED} == {key for key, value in block.items() if value is None and key not in fields}
