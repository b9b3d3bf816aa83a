"""Resume a run: the settings of its start, read from its folder, and the changes that a new start would make."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ragen_verl.errors import RecipeError
from ragen_verl.resolvers import register_resolvers
from ragen_verl.runs import disk
from ragen_verl.runs.folder import RunFolder, mapping
from ragen_verl.runs.writing import rows

__all__ = ["FREE", "Started", "changes", "differences", "flat", "history", "note_changes", "shown", "started"]

# keys that may differ between two parts of one run: its folder, its start, and evaluation instead of training
FREE = (
    "ragen.run.dir",
    "ragen.run.stall_minutes",
    "data.ragen",
    "trainer.default_local_dir",
    "trainer.val_only",
    "trainer.resume_mode",
    "ray_kwargs.ray_init.runtime_env.env_vars.RAGEN_VERL",  # the package's own, which a start adds
)


@dataclass(frozen=True)
class Started:
    """The start of a run, as Hydra recorded it in the folder's hydra/.

    Attributes:
        recipe: a name in the package, or the path of a YAML file.
        overrides: those of the command line, with the name of the folder.
        config: the composed and resolved recipe.
    """

    recipe: str
    overrides: list[str]
    config: dict[str, Any]


def started(folder: RunFolder) -> Started:
    """Read how a run was started.

    Raises:
        RecipeError: the folder is no folder of a run, or the run ended before Hydra's record.
    """
    hydra = folder.path / "hydra"
    if not all((hydra / name).is_file() for name in ("hydra.yaml", "config.yaml", "overrides.yaml")):
        raise RecipeError(f"{folder.path} is not the folder of a run that was started: it has no hydra/config.yaml.")
    try:
        return _started(hydra)
    except Exception as error:  # what OmegaConf and YAML raise has no common class
        said = " ".join(str(error).split())[:200]
        raise RecipeError(f"The record of the run's start in {hydra} is damaged and cannot be read: {said}.") from error


def _started(hydra: Path) -> Started:
    about = OmegaConf.load(hydra / "hydra.yaml").hydra
    recipe = OmegaConf.to_container(about.job, resolve=False)["config_name"]
    for source in OmegaConf.to_container(about.runtime, resolve=False)["config_sources"]:
        file = Path(source["path"]) / f"{recipe}.yaml"
        if source["provider"] == "command-line" and file.is_file():
            recipe = str(file)
    register_resolvers()
    config = OmegaConf.to_container(OmegaConf.load(hydra / "config.yaml"), resolve=True)
    return Started(recipe, [str(one) for one in OmegaConf.load(hydra / "overrides.yaml")], config)


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(key, value before, value after) of every setting that differs, without `FREE`; ... stands for no value."""
    found = differences(dict(flat(before)), dict(flat(after)))
    return [one for one in found if not one[0].startswith(FREE)]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """The same of two settings by keys in full, with all keys."""
    pairs = ((key, before.get(key, ...), after.get(key, ...)) for key in sorted({*before, *after}))
    return [(key, old, new) for key, old, new in pairs if old != new]


def note_changes(folder: RunFolder, config: Mapping[str, Any], step: int) -> None:
    """Append what a resumed run changes to the folder's history of settings; call it before config.yaml is replaced.

    Args:
        folder: the run's.
        config: resolved, of the run to resume.
        step: the last step of its checkpoint.
    """
    before = mapping(folder.path / "config.yaml")
    for key, old, new in changes(before, config) if before else ():
        values = {name: None if one is ... else one for name, one in (("before", old), ("after", new))}
        record = {"step": step + 1, "key": key, **values}
        disk.append(folder.settings, json.dumps(record, default=str) + "\n")


def history(folder: RunFolder) -> dict[str, list[tuple[int, Any]]]:
    """Key -> (first step, value) of every setting that was changed at a resume, from step 1 on."""
    found: dict[str, list[tuple[int, Any]]] = {}
    for _, record in rows(folder.settings, lambda _: None) if folder.settings.exists() else ():
        key, step = str(record.get("key")), record.get("step")
        if not isinstance(step, int):
            continue
        values = [one for one in found.get(key, [(1, record.get("before"))]) if one[0] < step]
        found[key] = [*values, (step, record.get("after"))]
    return found


def flat(block: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(key in full, value) of every leaf of a configuration; an empty block is a leaf."""
    pairs = block.items() if isinstance(block, Mapping) else enumerate(block) if isinstance(block, list) else ()
    if not pairs:
        yield path, block
    for key, value in pairs:
        yield from flat(value, f"{path}.{key}" if path else str(key))


def shown(value: Any) -> str:
    """A setting's value as text."""
    return "(none)" if value is ... else repr(value)
