"""A recipe is checked as verl's main composes it, with Hydra's own block, which has no values before the job begins."""

from __future__ import annotations

from hydra import compose, initialize_config_module
from recipe_composition import hydra_finds_verl

from ragen_verl.validation.recipe import check


def test_hydras_own_block_stops_no_run() -> None:
    hydra_finds_verl()
    with initialize_config_module("ragen_verl.recipes", version_base=None):
        config = compose("nano/frozen_lake", return_hydra_config=True)
    assert "hydra" in config
    assert check(config, template=False).train.groups == 16
