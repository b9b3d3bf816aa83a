"""Settings of an experiment's runs: what a result keeps of them, and how two of them differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from ragen_verl.runs.resume import FREE, differences, flat, shown

__all__ = ["compared", "differing", "packed", "unpacked"]

_OWN = ("ragen.train.seed", "trainer.experiment_name")
"""Keys that each run has for itself."""

_COMMON = "all"
_PACKAGE = str(files("ragen_verl"))


def compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Key in full -> value of the settings that have to be equal in all runs of a variant, as JSON would hold them.

    The package's own folder, which differs from machine to machine, is `<ragen_verl>` in them.
    """
    kept = {key: value for key, value in flat(settings) if not key.startswith(FREE) and key not in _OWN}
    return {key: _anywhere(value) for key, value in json.loads(json.dumps(kept, default=str)).items()}


def _anywhere(value: Any) -> Any:
    return value.replace(_PACKAGE, "<ragen_verl>") if isinstance(value, str) else value


def differing(before: Mapping[str, Any], after: Mapping[str, Any], usual: Mapping[str, Any]) -> list[str]:
    """Each setting in which a run differs from what it should be, as `key: its value -> the value it should have`.

    Args:
        before: the run's, by key in full.
        after: those it should have.
        usual: the recipe's without overrides. A key that the run's version did not have yet, and that nobody has set
            since, is no difference.
    """
    return [
        f"{key}: {shown(old)} -> {shown(new)}"
        for key, old, new in differences(before, after)
        if not (old is ... and key in usual and usual[key] == new)
    ]


def packed(variants: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Settings of every variant, those that all share under `all` only once."""
    if not variants:
        return {}
    first, *others = variants.values()
    common = {key: value for key, value in first.items() if all(one.get(key, ...) == value for one in others)}
    own = {
        name: {key: value for key, value in one.items() if key not in common} for name, one in sorted(variants.items())
    }
    return {_COMMON: common, **own}


def unpacked(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The inverse of `packed`."""
    return {name: {**settings[_COMMON], **own} for name, own in settings.items() if name != _COMMON}
