"""`ragen-verl train`."""

from __future__ import annotations

import typer

from ragen_verl.cli.console import console
from ragen_verl.cli.recipes import named
from ragen_verl.cli.resume import YES, confirm, tell
from ragen_verl.errors import RecipeError

__all__ = ["EPILOG", "train"]

EPILOG = """Examples:

ragen-verl train nano/frozen_lake

ragen-verl train nano/frozen_lake trainer.total_training_steps=5

ragen-verl train paper/sokoban_starpo_s actor_rollout_ref.actor.optim.lr=5e-7"""


def train(
    recipe: str = typer.Argument(
        help="A name that `ragen-verl recipes` lists, or a YAML file of your own.", autocompletion=named
    ),
    overrides: list[str] = typer.Argument(
        None, metavar="[KEY=VALUE]...", help="Hydra overrides: key=value, +new.key=value, ~key."
    ),
    yes: bool = YES,
    dry_run: bool = typer.Option(False, "--dry-run", help="Check the recipe, print its sizes and start nothing."),
    full: bool = typer.Option(False, "--full", help="With --dry-run: print the whole composed recipe instead."),
) -> None:
    """Train a recipe and print a table of what it learned and where the run's folder is.

    verl's own command trains in the same way:
    `python -m verl.trainer.main_ppo --config-path pkg://ragen_verl.recipes --config-name RECIPE`.
    Ctrl-C, SIGTERM and SIGHUP stop the run, and the command says how to continue; SIGUSR1 requests a checkpoint at the
    end of the step. Without a terminal it prints one plain line per step.
    """
    from ragen_verl.cli.fit import fit
    from ragen_verl.cli.prepare import prepare

    prepared = prepare(recipe, list(overrides or []), machine=not dry_run)
    if full and not dry_run:
        raise RecipeError("--full prints a recipe and trains nothing: add --dry-run.")
    if full:
        from omegaconf import OmegaConf

        typer.echo(OmegaConf.to_yaml(prepared.config))
        return
    told = fit(prepared.config)
    if dry_run:
        from ragen_verl.cli.dry_run import table

        console().print(table(prepared, list(overrides or []), told))
        return
    if told:
        typer.echo(told, err=True)
    confirm(prepared, yes)
    prepared = prepared.with_own_folder()
    tell(prepared)
    from ragen_verl.runs.launch import train as run

    raise typer.Exit(run(prepared.recipe, prepared.overrides, prepared.folder))
