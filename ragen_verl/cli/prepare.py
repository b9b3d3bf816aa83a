"""Compose and check a recipe, before `train`, `resume` and `sweep` start or write anything; it takes two seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ragen_verl.cli.recipes import check as check_name
from ragen_verl.config import unresolved
from ragen_verl.errors import RecipeError
from ragen_verl.names import is_file
from ragen_verl.runs import lock
from ragen_verl.runs.folder import RunFolder
from ragen_verl.validation.composition import compose, quoted
from ragen_verl.validation.machine import check_machine, make_paths_absolute
from ragen_verl.validation.recipe import check

__all__ = ["Prepared", "prepare"]

_RUN_DIR = "ragen.run.dir"
_DEFAULT_DIR = "runs/${trainer.experiment_name}"
"""`ragen.run.dir` in recipes/ragen.yaml; the command creates one folder per run in it."""


@dataclass(frozen=True)
class Prepared:
    """A run that may start.

    Attributes:
        recipe: as the user named it.
        overrides: the user's, and the folder.
        config: the composed recipe, resolved.
        folder: not made yet.
        is_new: whether the folder has its name from the recipe and the time.
    """

    recipe: str
    overrides: list[str]
    config: DictConfig
    folder: RunFolder
    is_new: bool = False

    def with_own_folder(self) -> Prepared:
        """The same run in a new folder, which is created here; another start may have taken the name."""
        path = self.folder.path
        for number in count(2):
            try:
                path.mkdir(parents=True, exist_ok=not self.is_new)
                break
            except FileExistsError:
                path = self.folder.path.with_name(f"{self.folder.path.name}-{number}")
            except OSError:  # the start says why
                break
        if path == self.folder.path:
            return self
        return prepare(self.recipe, [*self.overrides[:-1], f"{_RUN_DIR}={quoted(str(path))}"])


def prepare(
    recipe: str, overrides: Sequence[str], *, machine: bool = True, folder: RunFolder | None = None
) -> Prepared:
    """Compose a recipe and check it; nothing is written.

    Args:
        recipe: a name in the package, or a YAML file.
        overrides: Hydra overrides. Without a folder among them or in the file the run gets one of its own.
        machine: whether what the recipe needs of this machine is checked as well.
        folder: of the run to continue with; null for the one that the recipe or the overrides name.

    Raises:
        RecipeError: it cannot work; one sentence that says what to change.
    """
    check_name(recipe)
    is_new = False
    config = compose(recipe, overrides)
    if OmegaConf.is_missing(config, "ragen") or "run" not in (config.get("ragen") or {}):
        raise RecipeError(
            f"{recipe} builds on no recipe: begin it with a defaults list, say defaults: [/nano/frozen_lake, _self_]."
        )
    if folder:
        config.ragen.run.dir = str(folder.path)
    elif config.ragen.run and OmegaConf.to_container(config.ragen.run, resolve=False).get("dir") == _DEFAULT_DIR:
        name = Path(recipe).stem if is_file(recipe) else recipe.replace("/", "-")
        config.ragen.run.dir, is_new = f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}", True
    try:
        make_paths_absolute(config)
        check(config, template=False)
        if machine:
            if not is_new:  # two starts of one second: the second takes another folder
                lock.check(Path(config.ragen.run.dir))
            check_machine(config)
        OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        raise RecipeError(unresolved(error)) from error
    folder = RunFolder(config.ragen.run.dir)
    own = [one for one in overrides if one.partition("=")[0] != _RUN_DIR]
    return Prepared(recipe, [*own, f"{_RUN_DIR}={quoted(str(folder.path))}"], config, folder, is_new)
