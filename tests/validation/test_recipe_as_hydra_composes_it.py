"""A recipe is checked as verl's main composes it, with Hydra's own block, which has no values before the job begins."""

from __future__ import annotations

from hydra import compose, initialize_config_module
from hydra.core import plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from ragen_verl.resolvers import find_verl, register_resolvers
from ragen_verl.validation.recipe import check


def test_hydras_own_block_stops_no_run() -> None:
    register_resolvers()
    if not plugins.Plugins.instance().discover(SearchPathPlugin):
        find_verl(plugins)
    with initialize_config_module("ragen_verl.recipes", version_base=None):
        config = compose("nano/frozen_lake", return_hydra_config=True)
    assert "hydra" in config
    assert check(config, template=False).train.groups == 16
