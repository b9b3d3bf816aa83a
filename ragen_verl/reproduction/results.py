"""The runs of an experiment: which of them count, why others do not, and the result that is made of them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen_verl.errors import RecipeError
from ragen_verl.reproduction.measure import NotMeasured, measured
from ragen_verl.reproduction.outcomes import DamagedRun
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.resume import FREE, changes, flat, started
from ragen_verl.runs.sweep import Sweep

__all__ = [
    "DAMAGED",
    "DONE",
    "MISSING",
    "OTHER",
    "UNFINISHED",
    "UNMEASURED",
    "Compose",
    "RunState",
    "collect",
    "read",
    "set_aside",
    "state_of",
    "write",
]

SCHEMA = 1
MISSING, UNFINISHED, DAMAGED, DONE = "missing", "unfinished", "damaged", "done"
OTHER, UNMEASURED = "of other settings", "without a metric"

Compose = Callable[[str, list[str]], Mapping[str, Any]]
"""Recipe and overrides -> the resolved configuration; what composes needs verl's own files, so callers hand it in."""


@dataclass(frozen=True)
class RunState:
    """What a run's folder says.

    Attributes:
        state: `done`, or why the run does not count.
        why: in words; empty where it is done or missing.
    """

    state: str
    why: str = ""


def state_of(
    folder: RunFolder, settings: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None
) -> RunState:
    """Whether a run counts.

    Args:
        folder: of the run.
        settings: the configuration that it should have; None does not compare.
        defaults: the recipe's configuration without overrides. A key that the run's version did not have yet, and that
            nobody has set since, is no difference.
    """
    if not folder.path.is_dir() or not (folder.metrics.exists() or folder.summary.exists()):
        return RunState(MISSING)
    if settings is not None and folder.recipe and (differing := other_settings(folder, settings, defaults)):
        return RunState(OTHER, "; ".join(differing))
    if not folder.summary.exists():
        return RunState(UNFINISHED, folder.error.read_text().strip().splitlines()[-1] if folder.error.exists() else "")
    try:
        steps = json.loads(folder.summary.read_text())["steps"]
    except (ValueError, KeyError, TypeError):
        return RunState(DAMAGED, f"{folder.summary.name} is cut short")
    there = max((row["step"] for row in folder.rows()), default=0)
    if there != steps:
        return RunState(DAMAGED, f"{folder.metrics.name} ends at step {there} of {steps}")
    return RunState(DONE)


def other_settings(
    folder: RunFolder, settings: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> list[str]:
    """Each setting in which a run differs, as `key: its value -> the value it should have`."""
    usual = dict(flat(defaults)) if defaults else {}
    found = changes(started(folder).config, settings)
    return [
        f"{key}: {_shown(before)} -> {_shown(after)}"
        for key, before, after in found
        if not (before is ... and key in usual and usual[key] == after) and key != "trainer.experiment_name"
    ]


def _shown(value: Any) -> str:
    return "(none)" if value is ... else repr(value)


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Of a configuration without what differs between its runs."""
    kept = {key: value for key, value in flat(settings) if not key.startswith(FREE) and key != "ragen.train.seed"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:12]


def collect(sweep: Sweep, root: Path, compose: Compose | None = None, only: Collection[str] = ()) -> dict[str, Any]:
    """The result of the runs that are there.

    Args:
        sweep: with a protocol.
        root: the folder of all sweeps' runs.
        compose: to compare the settings of runs; None takes every finished run.
        only: variants; all, if there are none.

    Returns:
        `runs`, those that count, with what `measured` says, and `left_out` with a reason each.
    """
    runs: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    wanted: dict[str, Mapping[str, Any]] = {}
    defaults: Mapping[str, Any] = {}
    for variant, seed, folder in sweep.runs(root, only):
        state = state_of(folder)
        if state.state != MISSING and compose:
            defaults = defaults or compose(sweep.recipe, [])
            overrides = sweep.overrides_of(variant, seed, folder)
            if variant not in wanted:
                wanted[variant] = compose(sweep.recipe, overrides)
            state = state_of(folder, _with_seed(wanted[variant], seed), defaults)
        found: dict[str, Any] = {"variant": variant, "seed": seed}
        if state.state == DONE:
            try:
                found |= measured(folder, sweep.protocol, sweep.panels)
                runs.append(found | {"versions": _versions(folder)})
                continue
            except DamagedRun as error:
                state = RunState(DAMAGED, str(error))
            except NotMeasured as error:
                state = RunState(UNMEASURED, str(error))
        if state.state != MISSING:
            left_out.append(found | {"state": state.state, "why": state.why.replace(str(root) + os.sep, "")})
    return {
        "schema": SCHEMA,
        "item": sweep.name,
        "settings": {variant: fingerprint(one) for variant, one in wanted.items()},
        "runs": runs,
        "left_out": left_out,
    }


def _with_seed(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    ragen = dict(settings["ragen"])
    ragen["train"] = {**ragen["train"], "seed": seed}
    return {**settings, "ragen": ragen}


def _versions(folder: RunFolder) -> dict[str, str]:
    file = folder.path / "versions.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    return {name: found[name] for name in ("ragen-verl", "verl", "torch") if name in found}


def set_aside(folder: RunFolder) -> Path:
    """Rename the folder of a damaged run, so that the run can be repeated; nothing is deleted."""
    number = 1
    while (target := folder.path.with_name(f"{folder.path.name}.damaged{number}")).exists():
        number += 1
    return folder.path.rename(target)


def write(result: Mapping[str, Any], out: Path) -> Path:
    """A result's file, `<item>.json`; there is never half of one."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{result['item']}.json"
    draft = file.with_suffix(".part")
    runs = ",\n  ".join(json.dumps(run, separators=(",", ":")) for run in result["runs"])
    rest = json.dumps({key: value for key, value in result.items() if key != "runs"}, indent=1)
    draft.write_text(f'{rest[:-2]},\n "runs": [\n  {runs}\n ]\n}}\n' if runs else f'{rest[:-2]},\n "runs": []\n}}\n')
    draft.replace(file)
    return file


def read(item: str, out: Path) -> dict[str, Any]:
    """A result; one without runs, where there is none.

    Raises:
        RecipeError: the file is cut short, or of another version.
    """
    file = out / f"{item}.json"
    if not file.exists():
        return {"schema": SCHEMA, "item": item, "settings": {}, "runs": [], "left_out": []}
    try:
        found = json.loads(file.read_text("utf-8"))
        right = found["schema"] == SCHEMA and found["item"] == item and isinstance(found["runs"], list)
    except (ValueError, KeyError, TypeError):
        right = False
    if not right:
        raise RecipeError(
            f"{file} is no whole result of this version: make it again with `ragen-verl reproduce {item} "
            "--report-only`."
        )
    return found
