"""Hydra's sources of files, which read a file of the recipes or of verl's defaults once per process.

Composing a recipe reads 34 files, which takes 40 % of its time, and the tests compose some hundreds of recipes.
"""

from __future__ import annotations

import copy
from pathlib import Path

from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource

from ragen_verl.verl_files import folder

_read: dict[tuple[str, str | None, str], ConfigResult] = {}


def read_once() -> None:
    """From now on a file of an installed package is read when it is needed first, and copied after that."""
    Plugins.instance()  # it loads Hydra's own sources anew: classes that were imported before are not the ones in use
    for scheme in ("file", "pkg"):
        _remember(SourcesRegistry.instance().resolve(scheme))


def _remember(kind: type[ConfigSource]) -> None:
    load = kind.load_config

    def load_config(self: ConfigSource, config_path: str) -> ConfigResult:
        if self.scheme() == "file" and folder() not in Path(self.path).parents:  # a test may write it anew
            return load(self, config_path)
        key = (f"{self.scheme()}://{self.path}", self.provider, config_path)
        if key not in _read:
            _read[key] = load(self, config_path)
        return copy.deepcopy(_read[key])  # Hydra takes the list of defaults out of what it gets

    kind.load_config = load_config  # type: ignore[method-assign]
