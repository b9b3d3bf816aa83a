"""The settings of an experiment's runs: which of them a result keeps, and how two runs differ in them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from ragen_verl.cpu.nano_model.thinkers import thinker_of
from ragen_verl.runs.resume import FREE, differences, flat, shown

__all__ = ["compared", "differing", "packed", "unpacked"]

_SEED = "ragen.train.seed"
_OWN = (_SEED, "trainer.experiment_name")
"""Keys that differ between the runs of a variant."""

_COMMON = "all"
_PACKAGE = str(files("ragen_verl"))
_BUILT = re.compile(r".*/(thoughts-\d+-seed)(\d+)")


_RENAMED = {
    "ragen.diagnostics.drift.": "ragen.diagnostics.mismatch.",
    "ragen.filter.refill_": "ragen.filter.dynamic_sampling_",
    "ragen.rollout.max_tokens": "ragen.rollout.stated_length",
}
"""Beginning of a key in results of before November 2026 -> its name today, so that their runs still count."""


_GONE = {
    "ragen.diagnostics.indicators.echo_trap.ngram": 3,
    "ragen.diagnostics.mutual_information.max_forward_tokens": None,
}
"""Keys of before November 2026 that are no keys any more, with the value that they have for good: no difference."""


def _today(key: str) -> str:
    return next((new + key[len(old) :] for old, new in _RENAMED.items() if key.startswith(old)), key)


def compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Full key -> value, for the settings that have to be equal in all runs of a variant; values are as in JSON.

    The package's own folder differs between machines, so it is replaced by `<ragen_verl>`. A nano model that is
    built on each machine has its name. It ends with `-seed` if the model is that of the run's seed.
    """
    leaves = {_today(key): value for key, value in flat(settings)}
    kept = {key: value for key, value in leaves.items() if not key.startswith(FREE) and key not in _OWN}
    seed = leaves.get(_SEED)
    return {key: _anywhere(value, seed) for key, value in json.loads(json.dumps(kept, default=str)).items()}


def _anywhere(value: Any, seed: int | None) -> Any:
    if not isinstance(value, str):
        return value
    if built := _BUILT.fullmatch(value):
        name, number = built.groups()
        return f"<nano>/{name}" if seed is not None and int(number) == thinker_of(seed) else f"<nano>/{name}{number}"
    return value.replace(_PACKAGE, "<ragen_verl>")


def differing(before: Mapping[str, Any], after: Mapping[str, Any], usual: Mapping[str, Any]) -> list[str]:
    """The settings of a run that are not as they should be, each as `key: its value -> the value it should have`.

    Args:
        before: the run's settings by their full keys.
        after: the settings that it should have.
        usual: the settings of the recipe without overrides. A key that did not exist yet when the run was made is no
            difference if it has its usual value.
    """
    return [
        f"{key}: {shown(old)} -> {shown(new)}"
        for key, old, new in differences(before, after)
        if not (old is ... and key in usual and usual[key] == new)
        and not (new is ... and key in _GONE and _GONE[key] == old)
    ]


def packed(variants: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings of all variants; those that all variants share are stored once, under `all`."""
    if not variants:
        return {}
    first, *others = variants.values()
    common = {key: value for key, value in first.items() if all(one.get(key, ...) == value for one in others)}
    own = {
        name: {key: value for key, value in one.items() if key not in common} for name, one in sorted(variants.items())
    }
    return {_COMMON: common, **own}


def unpacked(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The inverse of `packed`, with today's names of keys."""
    whole = {name: {**settings[_COMMON], **own} for name, own in settings.items() if name != _COMMON}
    return {name: {_today(key): value for key, value in own.items()} for name, own in whole.items()}
