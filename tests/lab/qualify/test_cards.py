"""Every pair of recipe and hardware that is shipped fits the card that recipes/README.md names for it."""

from __future__ import annotations

import re

import pytest
from omegaconf import OmegaConf
from paths import ROOT
from ragen_lab.qualify import memory
from ragen_lab.qualify.cards import CARDS, card_of
from ragen_lab.qualify.memory_map import HARDWARE, paper_recipes
from recipe_composition import composed

from ragen_verl.errors import RecipeError

ROW = re.compile(r"^\| `(gpu\w*)` \| (\d) \| (\S+) \| (\S+) \|", re.MULTILINE)
#: hardware -> number of GPUs, smallest card for 0.5 billion parameters and for 3 billion; "-": none
PAGE = {name: rest for name, *rest in ROW.findall((ROOT / "recipes/README.md").read_text())}


def test_the_page_names_a_card_for_every_hardware() -> None:
    files = {file.stem for file in (ROOT / "recipes/hardware").glob("gpu*.yaml")}
    assert set(PAGE) == files == set(HARDWARE)


@pytest.mark.parametrize("hardware", HARDWARE)
def test_every_recipe_fits_the_card_that_the_page_names(hardware: str) -> None:
    for recipe in paper_recipes():
        config = composed(recipe, f"hardware={hardware}")
        OmegaConf.resolve(config)
        gpus, small, large = PAGE[hardware]
        assert config.trainer.n_gpus_per_node * config.trainer.nnodes == int(gpus)
        plain = OmegaConf.to_container(config)
        card = large if "3B" in plain["actor_rollout_ref"]["model"]["path"] else small
        fits = {name: memory.need(plain, one.gb).fits(one.gb) for name, one in CARDS.items()}
        assert fits[card] if card != "-" else not any(fits.values()), recipe


def test_cards_have_the_memory_that_they_are_named_after() -> None:
    assert CARDS["h100"].gb == pytest.approx(85.5, abs=0.05)
    assert {name: round(one.gb) for name, one in CARDS.items() if "-" in name} == {
        "a100-80": 86,
        "a100-40": 43,
        "rtx6000-ada": 52,
    }
    with pytest.raises(RecipeError, match="no known card"):
        card_of("h1000")


@pytest.mark.parametrize(
    ("model", "hardware", "card"),
    [("1.5B", "gpu_offload", "rtx6000-ada"), ("7B", "gpu_h100_8", "h100"), ("14B", "gpu_h100_8", "h200")],
)
def test_other_sizes_fit_where_the_page_says(model: str, hardware: str, card: str) -> None:
    config = composed(
        "paper/sokoban_ragen2", f"hardware={hardware}", f"actor_rollout_ref.model.path=Qwen/Qwen2.5-{model}"
    )
    OmegaConf.resolve(config)
    assert memory.need(OmegaConf.to_container(config), CARDS[card].gb).fits(CARDS[card].gb)
