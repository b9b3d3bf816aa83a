"""`ragen-verl resume`, and the question that `train` and `sweep` ask of a folder with a run of other settings in it."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ragen_verl.cli.console import console
from ragen_verl.errors import RecipeError

if TYPE_CHECKING:
    from ragen_verl.cli.prepare import Prepared

__all__ = ["YES", "confirm", "resume", "tell"]

_SHOWN = 20
YES = typer.Option(False, "--yes", "-y", help="Go on with other settings than the run's without asking.")


def resume(
    run_dir: Path = typer.Argument(help="The folder of a run that was started (ragen.run.dir)."),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings to change from here on."),
    yes: bool = YES,
) -> None:
    """Resume a run from its newest checkpoint, with its own recipe and overrides.

    Settings that differ from the run's are shown and have to be confirmed. `trainer.val_only=true` evaluates the
    newest checkpoint and trains nothing.
    """
    from ragen_verl.cli.fit import fit
    from ragen_verl.cli.prepare import prepare
    from ragen_verl.runs import lock
    from ragen_verl.runs.folder import RunFolder
    from ragen_verl.runs.launch import train
    from ragen_verl.runs.resume import started

    folder = RunFolder(run_dir)
    lock.check(folder.path)  # a run that is starting has no record yet
    run = started(folder)
    new = list(overrides or [])
    keys = {_key(one) for one in new} | {"ragen.run.dir"}
    kept = [one for one in run.overrides if _key(one) not in keys]
    prepared = prepare(run.recipe, [*kept, *new], folder=folder)
    steps = prepared.config.trainer.total_training_steps
    done = max((row["step"] for row in folder.rows()), default=0)
    if folder.summary.exists() and done >= steps and not prepared.config.trainer.val_only:
        raise RecipeError(
            f"The run in {folder.path} has made all its {steps} steps: add trainer.total_training_steps=... to train "
            "on, or trainer.val_only=true to evaluate it."
        )
    if told := fit(prepared.config):
        typer.echo(told, err=True)
    confirm(prepared, yes)
    tell(prepared)
    raise typer.Exit(train(prepared.recipe, prepared.overrides, prepared.folder))


def confirm(prepared: Prepared, yes: bool) -> None:
    """Show what differs from the run that is in the folder, and ask whether to continue.

    Raises:
        RecipeError: there is nobody to ask, or the answer is no.
    """
    from omegaconf import OmegaConf

    if not (prepared.folder.recipe and any(row["step"] for row in prepared.folder.rows())):
        return
    from ragen_verl.runs.resume import changes, shown, started

    differing = changes(started(prepared.folder).config, OmegaConf.to_container(prepared.config))
    if not differing:
        return
    for key, before, after in differing:
        if ".optim." in key and prepared.config.actor_rollout_ref.actor.strategy == "megatron":
            raise RecipeError(
                f"{key} cannot be changed from {before!r} to {after!r} at a resume with Megatron, whose checkpoint "
                "keeps its own: leave it, or start a new run from the exported model."
            )
    listed = [f"{key}: {shown(before)} -> {shown(after)}" for key, before, after in differing]
    if len(listed) > _SHOWN:
        listed = [*listed[:_SHOWN], f"and {len(listed) - _SHOWN} more"]
    if not yes and not sys.stdin.isatty():
        raise RecipeError(
            f"{prepared.folder.path} holds a run with other settings ({'; '.join(listed)}): add --yes to continue with "
            "yours, or name another folder."
        )
    out = console()
    out.print(f"The run in {prepared.folder.path} had other settings:", soft_wrap=True)
    for line in listed:
        out.print(f"  {line}", soft_wrap=True)
    if not yes and not typer.confirm("Go on with the new ones?"):
        raise RecipeError("Nothing was started.")


_SHARED = (
    "ragen.filter.cross_fit does not remove the bias of the filter with ragen.rollout.shared_group_rng, as both halves "
    "of a group see one draw: set shared_group_rng to false for that."
)


def tell(prepared: Prepared) -> None:
    """Say where verl differs from the tested one, what cannot help, which checkpoints are damaged, where it resumes."""
    from ragen_verl.doctor import recorded
    from ragen_verl.runs.checkpoints import survey_of

    found, said = survey_of(prepared.config), []
    if importlib.metadata.version("verl") != recorded()["verl"]:
        from ragen_verl.doctor import seams

        said += filter(None, [seams.notice()])
    ragen = prepared.config.ragen
    said += [_SHARED] if ragen.filter.cross_fit and ragen.rollout.shared_group_rng else []
    for sentence in [*said, *(found.sentences() if found else [])]:
        console().print(sentence, soft_wrap=True)


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]
