"""Every value of the tables has its source in recipes/tables/SOURCES.md; what the originals had is set."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT
from ragen_lab.reproduce.sweep import Sweep, packaged
from recipe_composition import composed

TABLES = sorted(name for name in packaged() if name.startswith("tables/"))
SOURCES = (ROOT / "recipes" / "tables" / "SOURCES.md").read_text()


def section(name: str) -> str:
    return SOURCES.split(f"\n## {name.removeprefix('tables/')}\n")[1].partition("\n## ")[0]


def overrides(sweep: Sweep) -> Iterator[str]:
    yield from sweep.overrides
    for variant in sweep.variants.values():
        for part in variant:
            yield from [part] if isinstance(part, str) else part


@pytest.mark.parametrize("name", TABLES)
def test_every_setting_of_a_table_has_a_source(name: str) -> None:
    sweep = Sweep.read(Path(name))
    rows = re.findall(r"^\| (`.*?) \| (.+?) \|$", section(name), re.MULTILINE)
    listed = {setting for settings, _ in rows for setting in re.findall("`([^`]+)`", settings)}
    assert listed == set(overrides(sweep))


@pytest.mark.parametrize("name", TABLES)
def test_every_published_number_has_a_source(name: str) -> None:
    rows = re.findall(r"^\| (\w[^|]*?) \| ([^|`]+?) \| ([\d.]+) \| (.+?) \|$", section(name), re.MULTILINE)
    published = Sweep.read(Path(name)).published
    wanted = {(run, panel, value) for run, values in published.items() for panel, value in values.items()}
    assert {(run, panel, float(value)) for run, panel, value, _ in rows} == wanted
    assert all(re.match(r"(table|figure)", source) for *_, source in rows)


RELEASED = json.loads((ROOT / "recipes" / "tables" / "released.json").read_text())


@pytest.mark.parametrize("name", RELEASED)
def test_what_a_released_script_states_is_not_ours(name: str) -> None:
    """The values in a table are those of the script, in data of their own so that both have to be wrong to agree."""
    said = RELEASED[name]
    given = [one.split("=") for one in overrides(Sweep.read(Path(f"tables/{said['table']}")))]
    assert {value for key, value in given if key == said["key"]} == {str(value) for value in said["values"]}
    row = next(line for line in section(said["table"]).splitlines() if f"`{said['key']}=" in line)
    assert said["source"] in row


def test_a_tables_seeds_leave_room_for_a_whole_run() -> None:
    for name in TABLES:
        seeds = sorted(Sweep.read(Path(name)).seeds)
        assert all(later - earlier >= 10**6 for earlier, later in itertools.pairwise(seeds)), name
        assert "a million apart" in packaged()[name].read_text()


@pytest.mark.parametrize("name", [name for name in TABLES if re.search("ragen_(f|t|s|l)", name)])
def test_first_papers_tables_train_as_its_code_did(name: str) -> None:
    sweep = Sweep.read(Path(name))
    rollout = composed(sweep.recipe, *sweep.overrides).ragen.rollout
    assert rollout.loss_on_env_tokens and rollout.shared_group_rng


def test_second_papers_environments_are_the_released_ones() -> None:
    for recipe, frozen in (("sokoban", None), ("frozen_lake", 0.9)):
        ragen = composed(f"paper/{recipe}_ragen2").ragen
        for split in (ragen.train, ragen.val):
            assert split.envs[0].kwargs.observation_format == "grid_coord"
            assert split.envs[0].kwargs.get("frozen") == frozen
        assert (ragen.rollout.stated_length, ragen.rollout.max_actions_per_turn) == (120, 2)
    kwargs = composed("paper/countdown_ragen2").ragen.train.envs[0].kwargs
    assert (kwargs.rows, kwargs.plus_minus) == (20_000, True)


def test_table_4_filters_by_softmax_and_keeps_equal_returns() -> None:
    for part in ("algorithms", "models"):
        sweep = Sweep.read(Path(f"tables/ragen2_table4_{part}"))
        chosen = composed(sweep.recipe, *sweep.overrides).ragen.filter
        assert (chosen.strategy, chosen.value, chosen.mass, chosen.temperature) == ("top_p", 0.9, "softmax", 1.0)
        assert chosen.zero_variance == "keep"


def test_table_9_drops_equal_returns_and_measures_information() -> None:
    sweep = Sweep.read(Path("tables/ragen2_table9"))
    for variant in ("top_p_1.0", "top_p_0.9", "min_p_0.05", "top_k_0.25", "smallest_top_k_0.5"):
        chosen = [one for part in sweep.variants[variant] for one in ([part] if isinstance(part, str) else part)]
        ragen = composed(sweep.recipe, *sweep.overrides, *chosen).ragen
        assert ragen.filter.zero_variance == "drop"
        probe = ragen.diagnostics.mutual_information
        assert (probe.enabled, probe.every, probe.samples) == (True, 5, 64)
