"""The runs of an experiment: which of them count, why the others do not, and the result from those that count."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen_lab.reproduce.catalogue import experiments
from ragen_lab.reproduce.measure import NotMeasured, from_curve, measured, statistics_of
from ragen_lab.reproduce.outcomes import DamagedRun
from ragen_lab.reproduce.settings import compared, differing, packed, unpacked
from ragen_lab.reproduce.sweep import Sweep

from ragen_verl.errors import RecipeError
from ragen_verl.runs import disk
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.resume import started

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
    "earlier_result",
    "read",
    "set_aside",
    "state_of",
    "write",
]

_SCHEMA = 1
MISSING, UNFINISHED, DAMAGED, DONE = "missing", "unfinished", "damaged", "done"
OTHER, UNMEASURED = "of other settings", "without a metric"

Compose = Callable[[str, list[str]], Mapping[str, Any]]
"""Recipe and overrides -> the resolved configuration. Callers pass it in, because composing needs verl's own files."""


class _OtherSettings(Exception):
    """A run of an earlier result was made with other settings than those of today."""


@dataclass(frozen=True)
class RunState:
    """The state of a run, from its folder.

    Attributes:
        state: `done`, or the kind of reason why the run does not count.
        why: the reason in words; empty if the run is done or missing.
    """

    state: str
    why: str = ""


def state_of(
    folder: RunFolder, settings: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None
) -> RunState:
    """Whether a run counts.

    Args:
        folder: the run's folder.
        settings: the settings that it should have (`compared`); None compares nothing.
        defaults: the settings of the recipe without overrides.
    """
    if not folder.path.is_dir() or not (folder.metrics.exists() or folder.summary.exists()):
        return RunState(MISSING)
    compares = settings is not None and folder.recipe
    if compares and (found := differing(compared(started(folder).config), settings, defaults or {})):
        return RunState(OTHER, "; ".join(found))
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


def collect(
    sweep: Sweep,
    root: Path,
    compose: Compose | None = None,
    only: Collection[str] = (),
    earlier: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make the result of an experiment from its runs.

    Args:
        sweep: a sweep with a protocol.
        root: the folder of all sweeps' runs.
        compose: composes a recipe, so that the settings of runs can be compared; None takes every finished run.
        only: the variants to take; all, if it is empty.
        earlier: an earlier result. Its runs count as well if their folders are gone, so that an experiment can be done
            in parts and on several machines.

    Raises:
        RecipeError: the protocol is another one than the earlier result's, and does not say so.

    Returns:
        `runs` with what `measured` returns for each run that counts, and `left_out` with the reason for each other one.
    """
    if earlier and earlier["runs"] and earlier.get("protocol"):
        sweep.protocol.check_unchanged(sweep.name, sweep.seeds, earlier["protocol"])
    runs: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    wanted: dict[str, Mapping[str, Any]] = {}
    kept = {(run["variant"], run["seed"]): run for run in earlier["runs"]} if earlier else {}
    kept_settings = unpacked(earlier["settings"]) if earlier else {}
    defaults: Mapping[str, Any] = {}
    for variant, seed, folder in sweep.runs(root, only):
        state = state_of(folder)
        before = kept.get((variant, seed)) if state.state == MISSING else None
        if state.state == MISSING and not before:
            continue
        if compose:
            defaults = defaults or compared(compose(sweep.recipe, []))
            if variant not in wanted:
                wanted[variant] = compared(compose(sweep.recipe, sweep.overrides_of(variant, seed, folder)))
        found: dict[str, Any] = {"variant": variant, "seed": seed}
        try:
            if before:
                runs.append(_still_counts(before, sweep, kept_settings.get(variant, {}), wanted.get(variant), defaults))
                continue
            if compose:
                state = state_of(folder, wanted[variant], defaults)
            if state.state == DONE:
                found |= measured(folder, sweep.protocol, sweep.panels)
                runs.append(found | {"versions": _versions(folder)})
                continue
        except DamagedRun as error:
            state = RunState(DAMAGED, str(error))
        except NotMeasured as error:
            state = RunState(UNMEASURED, str(error))
        except _OtherSettings as error:
            state = RunState(OTHER, str(error))
        left_out.append(found | {"state": state.state, "why": state.why.replace(str(root) + os.sep, "")})
    return {
        "schema": _SCHEMA,
        "item": sweep.name,
        "protocol": sweep.protocol.deciding(sweep.seeds),
        "settings": packed({run["variant"]: wanted[run["variant"]] for run in runs} if compose else {}),
        "runs": runs,
        "left_out": left_out,
    }


def _still_counts(
    run: Mapping[str, Any],
    sweep: Sweep,
    settings: Mapping[str, Any],
    wanted: Mapping[str, Any] | None,
    defaults: Mapping[str, Any],
) -> dict[str, Any]:
    """A run of an earlier result. It counts if it has today's settings and everything that is measured today.

    Raises:
        _OtherSettings: its settings differ.
        NotMeasured: a statistic or a curve is missing.
    """
    if wanted is not None and (found := differing(settings, wanted, defaults)):
        raise _OtherSettings("; ".join(found))
    if missing := sorted({*statistics_of(sweep.protocol)} - {*run["values"]} | {*sweep.panels} - {*run["curves"]}):
        raise NotMeasured(f"The earlier result has no {missing[0]}.")
    return dict(run)


def earlier_result(sweep: Sweep, out: Path) -> dict[str, Any]:
    """A sweep's result in a folder, with the runs that `runs_of` takes from the results of others there.

    Raises:
        RecipeError: a file is cut short, or of another version.
    """
    found = read(sweep.name, out)
    runs, settings = list(found["runs"]), unpacked(found["settings"])
    there = {(run["variant"], run["seed"]) for run in runs}
    for variant, source in sweep.runs_of.items():
        name, _, theirs = source.partition("/")
        if name not in experiments():
            continue
        other = read(name, out)
        taken = [
            _taken(run, variant, sweep, experiments()[name].panels)
            for run in other["runs"]
            if run["variant"] == theirs and run["seed"] in sweep.seeds and (variant, run["seed"]) not in there
        ]
        runs += taken
        if taken and variant not in settings:
            settings[variant] = unpacked(other["settings"])[theirs]
    return found | {"runs": runs, "settings": packed(settings)}


def _taken(run: Mapping[str, Any], variant: str, sweep: Sweep, panels: Mapping[str, str]) -> dict[str, Any]:
    """A run of another result, with what that says of this sweep's statistics and panels."""
    titles = {metric: title for title, metric in panels.items()}
    missing = {name: one for name, one in statistics_of(sweep.protocol).items() if name not in run["values"]}
    found = {name: from_curve(run, one, panels) for name, one in missing.items()}
    shared = {title: titles.get(metric) for title, metric in sweep.panels.items()}
    return {
        **run,
        "variant": variant,
        "values": run["values"] | {name: value for name, value in found.items() if value is not None},
        "curves": {title: run["curves"].get(theirs, []) for title, theirs in shared.items()},
        "best": {title: run["best"][theirs] for title, theirs in shared.items() if theirs in run["best"]},
    }


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
    """Write the file of a result, `<item>.json`, in one piece, and return its path."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{result['item']}.json"
    runs = ",\n  ".join(json.dumps(run, separators=(",", ":")) for run in result["runs"])
    rest = json.dumps({key: value for key, value in result.items() if key != "runs"}, indent=1)[:-2]
    disk.replace(file, f'{rest},\n "runs": [\n  {runs}\n ]\n}}\n' if runs else f'{rest},\n "runs": []\n}}\n')
    return file


def read(item: str, out: Path) -> dict[str, Any]:
    """Read a result; it has no runs if there is no file.

    Raises:
        RecipeError: the file is cut short, or of another version.
    """
    file = out / f"{item}.json"
    if not file.exists():
        return {"schema": _SCHEMA, "item": item, "settings": {}, "runs": [], "left_out": []}
    try:
        found = json.loads(file.read_text("utf-8"))
        right = found["schema"] == _SCHEMA and found["item"] == item and isinstance(found["runs"], list)
    except (ValueError, KeyError, TypeError):
        right = False
    if not right:
        raise RecipeError(
            f"{file} is no whole result of this version: make it again with `ragen-verl reproduce {item} "
            "--report-only`."
        )
    return found
