"""What `train`, `resume` and `sweep` do before anything starts or is written: compose and check, in two seconds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
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
"""`ragen.run.dir` in recipes/ragen.yaml; the command makes a folder a run of it."""


@dataclass(frozen=True)
class Prepared:
    """A run that may start.

    Attributes:
        recipe: as the user named it.
        overrides: the user's, and the folder.
        config: the composed recipe, resolved.
        folder: not made yet.
    """

    recipe: str
    overrides: list[str]
    config: DictConfig
    folder: RunFolder


def prepare(
    recipe: str, overrides: Sequence[str], *, machine: bool = True, folder: RunFolder | None = None
) -> Prepared:
    """Compose a recipe and check it; nothing is written, but for the folder of a new run, which is made.

    Args:
        recipe: a name in the package, or a YAML file.
        overrides: Hydra overrides. Without a folder among them or in the file the run gets one of its own.
        machine: whether what the recipe needs of this machine is checked as well.
        folder: of the run to go on with; null for the one that the recipe or the overrides name.

    Raises:
        RecipeError: it cannot work; one sentence that says what to change.
    """
    check_name(recipe)
    own = None
    config = compose(recipe, overrides)
    if not config.get("ragen"):
        raise RecipeError(f"{recipe} has no ragen block: put /ragen at the head of its defaults list.")
    if folder:
        config.ragen.run.dir = str(folder.path)
    elif OmegaConf.to_container(config.ragen.run, resolve=False).get("dir") == _DEFAULT_DIR:
        name = Path(recipe).stem if is_file(recipe) else recipe.replace("/", "-")
        config.ragen.run.dir = str(own := _new_folder(name, machine))
    try:
        make_paths_absolute(config)
        check(config, template=False)
        if machine:
            lock.check(Path(config.ragen.run.dir))
            check_machine(config)
        OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        raise RecipeError(unresolved(error)) from error
    except RecipeError:
        if own and machine:
            with suppress(OSError):
                own.rmdir()
        raise
    folder = RunFolder(config.ragen.run.dir)
    own = [one for one in overrides if one.partition("=")[0] != _RUN_DIR]
    return Prepared(recipe, [*own, f"{_RUN_DIR}={quoted(str(folder.path))}"], config, folder)


def _new_folder(name: str, make: bool) -> Path:
    """A folder for a run that no other run has, named after the recipe and the time; it is made here."""
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in count(1):
        folder = Path("runs").absolute() / (stem if number == 1 else f"{stem}-{number}")
        if not make:
            return folder
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:  # the check of the machine says why
            pass
        return folder
    raise AssertionError
