"""`ragen-verl train`."""

from __future__ import annotations

import typer

from ragen_verl.cli.app import app

EPILOG = """Examples:

ragen-verl train nano/frozen_lake

ragen-verl train nano/frozen_lake trainer.total_training_steps=5 ragen.train.seed=20000

ragen-verl train ./my_recipe.yaml +actor_rollout_ref.actor.optim.lr=1e-5"""


@app.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
def train(
    recipe: str = typer.Argument(help="A name that `ragen-verl recipes` lists, or the path of a YAML file."),
    overrides: list[str] = typer.Argument(
        None, metavar="[KEY=VALUE]...", help="Hydra overrides: key=value, +new.key=value, ~key."
    ),
) -> None:
    """Train a recipe and print a table of what it learned and where the run's folder is.

    The same training as `python -m verl.trainer.main_ppo --config-path pkg://ragen_verl.recipes --config-name RECIPE`,
    with mistakes in the recipe reported before anything starts.
    """
    from ragen_verl.run import train as run

    raise typer.Exit(run(recipe, list(overrides or [])))
