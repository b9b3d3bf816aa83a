"""Build the nano model: `python -m nano_model --help`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import typer

from nano_model.build import Recipe, build
from nano_model.callers import CallerRecipe
from nano_model.thinkers import ThoughtRecipe


class Thoughts(str, Enum):
    """What the players think."""

    notes = "notes"
    sentences = "sentences"
    none = "none"


def main(
    out: Path = typer.Option(None, help="Folder to write the model to; a folder in your cache where none is given."),
    seed: int = typer.Option(0, help="Seed: the same seed gives the same model."),
    thoughts: Thoughts = typer.Option(
        Thoughts.notes, help="notes: three words a turn; sentences: 10 to 40 tokens; none: calls of tools."
    ),
    force: bool = typer.Option(False, "--force", help="Build it even where it is already there."),
) -> None:
    """Build the nano model: about a million parameters that can play, but not well, for trainings without a GPU.

    Trained from scratch on scripted play in the environments; nothing is downloaded. Prints the model's folder.
    `--thoughts sentences --seed N`, with N from 1 to 3, makes the models of `${ragen_nano:thoughts,N}`.
    """
    recipe = {"notes": Recipe, "sentences": ThoughtRecipe, "none": CallerRecipe}[thoughts.value]()
    typer.echo(build(out=out, seed=seed, force=force, recipe=recipe))


if __name__ == "__main__":
    typer.run(main)
