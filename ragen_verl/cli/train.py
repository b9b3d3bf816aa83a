"""`ragen-verl train`."""

from __future__ import annotations

import typer

from ragen_verl.cli.resume import YES, confirm, tell

__all__ = ["EPILOG", "train"]

EPILOG = """Examples:

ragen-verl train nano/frozen_lake

ragen-verl train nano/frozen_lake trainer.total_training_steps=5

ragen-verl train paper/sokoban_starpo_s actor_rollout_ref.actor.optim.lr=5e-7"""


def train(
    recipe: str = typer.Argument(help="A name that `ragen-verl recipes` lists, or a YAML file of your own."),
    overrides: list[str] = typer.Argument(
        None, metavar="[KEY=VALUE]...", help="Hydra overrides: key=value, +new.key=value, ~key."
    ),
    yes: bool = YES,
    dry_run: bool = typer.Option(False, "--dry-run", help="Check the recipe, print it in full and start nothing."),
) -> None:
    """Train a recipe and print a table of what it learned and where the run's folder is.

    The same training as verl's own command,
    `python -m verl.trainer.main_ppo --config-path pkg://ragen_verl.recipes --config-name RECIPE`.
    Ctrl-C, SIGTERM and SIGHUP stop it and it says how to go on; SIGUSR1 asks for a checkpoint at the end of the step.
    Without a terminal it prints one plain line a step.
    """
    from ragen_verl.cli.fit import fit
    from ragen_verl.cli.prepare import prepare

    prepared = prepare(recipe, list(overrides or []), machine=not dry_run)
    if told := fit(prepared.config):
        typer.echo(told, err=True)
    if dry_run:
        from omegaconf import OmegaConf

        typer.echo(OmegaConf.to_yaml(prepared.config))
        return
    confirm(prepared, yes)
    prepared = prepared.with_own_folder()
    tell(prepared)
    from ragen_verl.runs.launch import train as run

    raise typer.Exit(run(prepared.recipe, prepared.overrides, prepared.folder))
