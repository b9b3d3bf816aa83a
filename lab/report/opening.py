"""Open the folders of runs and evaluations, and tell them apart: short names, and variants that only seeds repeat."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ragen_lab.report.reading import Run, mapping_of, read_run
from ragen_lab.report.trajectories import normalise

from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.trajectories import EPISODES, read_file

__all__ = ["Variant", "evaluation", "opened", "overrides", "short_names", "variants"]

_REPEATS = re.compile(r"^[+~]*(ragen\.(train\.|run\.)?seed|ragen\.run\.dir|trainer\.experiment_name|data\.seed)\b")
"""Overrides that do not make another variant: seeds and folders."""


@dataclass(frozen=True)
class Variant:
    """Runs of one recipe with the same overrides besides seeds and folders.

    Attributes:
        label: what tells it from the other variants.
        runs: numbers of its runs.
    """

    label: str
    runs: tuple[int, ...]


def opened(paths: Sequence[str | Path]) -> list[Run]:
    """The runs in folders, in which an evaluation counts as a run of each policy; with names that tell them apart.

    Raises:
        RecipeError: a folder does not exist, or is neither a run's nor an evaluation's.
    """
    runs = [run for path in paths for run in (evaluation(path) or [read_run(path)])]
    names = short_names([run.folder.path for run in runs])
    for run, name in zip(runs, names, strict=True):
        run.name = name
    return runs


def evaluation(path: str | Path) -> list[Run]:
    """The policies of an evaluation's folder, or the one whose folder it is; [] where it is no evaluation."""
    path = Path(path).expanduser()
    own = path / EPISODES
    files = [own] if own.is_file() else sorted(path.glob(f"*/{EPISODES}"), key=lambda file: file.stat().st_mtime)
    return [_policy(file) for file in files]


def _policy(file: Path) -> Run:
    """A policy's episodes as a run with one step and no metrics."""
    run = Run(RunFolder(file.parent))
    settings = mapping_of(run, file.with_name("settings.json"))
    run.policy = str(settings.get("policy") or file.parent.name)
    run.summary = {"recipe": settings.get("recipe"), "overrides": settings.get("overrides")}
    episodes: dict[tuple[str, int], dict[tuple, dict[str, Any]]] = {}
    for record in run.told(read_file(file)):
        if shown := normalise(record):
            place = (str(record.get("split") or "val"), 0)
            key = (shown["env"], shown["seed"], shown["rollout_index"])
            episodes.setdefault(place, {})[key] = shown  # an episode that was played again comes later
    run.played = {place: list(found.values()) for place, found in episodes.items()}
    run.files = {split: {step: file} for split, step in run.played}
    return run


def overrides(run: Run) -> list[str]:
    """The overrides of a run's recipe, as they were typed."""
    try:
        text = (run.folder.path / "hydra" / "overrides.yaml").read_text("utf-8", errors="replace")
        found = yaml.safe_load(text)
    except (OSError, yaml.YAMLError):
        found = run.summary.get("overrides")
    return [str(one) for one in found] if isinstance(found, list) else []


def variants(runs: Sequence[Run]) -> list[Variant]:
    """The runs by what was trained, in the order of the first run of each; a policy is one of its own."""
    found: dict[tuple, list[int]] = {}
    settings: dict[tuple, set[str]] = {}
    for number, run in enumerate(runs):
        lasting = {one for one in overrides(run) if not _REPEATS.match(one)}
        key = (number,) if run.policy else (run.recipe, *sorted(lasting))
        found.setdefault(key, []).append(number)
        settings[key] = lasting | {run.recipe}
    shared = set.intersection(*settings.values()) if settings else set()
    labels = [", ".join(sorted(settings[key] - shared)) or runs[numbers[0]].recipe for key, numbers in found.items()]
    return [
        Variant(runs[numbers[0]].name if len(numbers) == 1 else label, tuple(numbers))
        for label, numbers in zip(labels, found.values(), strict=True)
    ]


def short_names(paths: Sequence[Path]) -> list[str]:
    """For each folder the shortest part of its path, in whole words, that no other has.

    The words that all begin with and all end with are left out, such as `seed1` and `seed2` of `runs/a-seed1/x` and
    `runs/a-seed2/x`; one folder keeps its name, and folders that are given twice are numbered.
    """
    if len(set(paths)) < 2:
        return [paths[0].name, *(f"{path.name} ({number})" for number, path in enumerate(paths[1:], start=2))]
    words = [re.findall(r"[^/\-_,+ ]+[/\-_,+ ]*|[/\-_,+ ]+", path.as_posix()) for path in paths]
    shortest = min(map(len, words)) - 1
    first = next((n for n in range(shortest) if len({one[n] for one in words}) > 1), shortest)
    most = shortest - first
    last = next((n for n in range(most) if len({one[-1 - n].rstrip("/") for one in words}) > 1), most)
    names = ["".join(one[first : len(one) - last]).strip("/-_,+ ") for one in words]
    if len(set(names)) < len(set(paths)) or not all(names):
        names = [path.as_posix() for path in paths]
    seen: dict[str, int] = {}
    for number, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        names[number] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return names
