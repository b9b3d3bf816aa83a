"""Placeholder until the cross-checks land."""
from __future__ import annotations

from hydra.experimental.callback import Callback


class RecipeCheck(Callback):
    """Check."""

    def on_run_start(self, config, **kwargs):
        """Run."""
        print("CHECK", config.ragen.train.envs[0].groups)
