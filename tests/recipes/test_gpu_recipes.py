"""What the pages name for GPUs composes and is accepted: recipes, hardware, modes and numbers of devices together."""

from __future__ import annotations

import re
import shlex
from itertools import product

import pytest
from paths import ROOT
from recipe_composition import composed, verl_accepts

from ragen_verl.errors import RecipeError
from ragen_verl.validation.recipe import check

PAGES = (ROOT / "README.md", ROOT / "recipes" / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TRAIN = re.compile(r"^ {4}(?:exec )?(?:\.venv/bin/)?ragen-verl train (paper/[^#\[\n]*)", re.MULTILINE)
COMMANDS = sorted({command.strip() for page in PAGES for command in TRAIN.findall(page.read_text())})
HARDWARE = sorted(path.stem for path in (ROOT / "recipes" / "hardware").glob("gpu*.yaml"))
MODES = sorted(path.stem for path in (ROOT / "recipes" / "mode").glob("*.yaml"))
PAPER = sorted(f"paper/{path.stem}" for path in (ROOT / "recipes" / "paper").glob("*.yaml"))
# paper recipes differ in environment, algorithm and name alone (test_recipes.py), so these stand for both bases
BASES = ("paper/sokoban_starpo_s", "paper/sokoban_starpo_grpo", "paper/sokoban_ragen2")
DEVICES = ((), ("trainer.n_gpus_per_node=4",), ("trainer.n_gpus_per_node=8", "trainer.nnodes=2"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_a_page_is_accepted(command: str, tiny_model: str) -> None:
    recipe, *overrides = shlex.split(command)
    config = composed(recipe, *overrides, f"actor_rollout_ref.model.path={tiny_model}")
    check(config)
    verl_accepts(config)


def test_two_nodes_and_separate_devices_have_commands() -> None:
    assert any("nnodes=2" in one for one in COMMANDS) and any("mode=disaggregated" in one for one in COMMANDS)


@pytest.mark.parametrize(("hardware", "mode"), product(HARDWARE, MODES))
@pytest.mark.parametrize(
    "recipe", [pytest.param(one, marks=[] if one == BASES[0] else pytest.mark.slow) for one in BASES]
)
def test_hardware_modes_and_numbers_of_devices_go_together(
    recipe: str, hardware: str, mode: str, tiny_model: str
) -> None:
    model = f"actor_rollout_ref.model.path={tiny_model}"
    for devices in DEVICES:
        config = composed(recipe, f"hardware={hardware}", f"mode={mode}", model, *devices)
        if (hardware, mode) == ("gpu_lora", "disaggregated"):
            with pytest.raises(RecipeError, match="without the adapter"):
                check(config)
            continue
        check(config)
        verl_accepts(config)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [one for one in PAPER if one not in BASES])
def test_every_paper_recipe_takes_every_mode_on_two_nodes(
    recipe: str, tiny_model: str, local_tables: dict[str, list[str]]
) -> None:
    local = local_tables.get(recipe.removeprefix("paper/").removesuffix("_ragen2"), [])
    for mode in MODES:
        overrides = (f"mode={mode}", f"actor_rollout_ref.model.path={tiny_model}", *local, *DEVICES[-1])
        check(composed(recipe, *overrides))
