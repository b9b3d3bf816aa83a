"""Build the nano model: `python -m nano_model --help`."""

from __future__ import annotations

from pathlib import Path

import typer

from nano_model.build import build


def main(
    out: Path = typer.Option(None, help="Folder to write the model to; a folder in your cache where none is given."),
    seed: int = typer.Option(0, help="Seed: the same seed gives the same model."),
    force: bool = typer.Option(False, "--force", help="Build it even where it is already there."),
) -> None:
    """Build the nano model: about a million parameters that can play, but not well, for trainings without a GPU.

    Trained from scratch on scripted play in the environments; nothing is downloaded. Prints the model's folder.
    """
    typer.echo(build(out=out, seed=seed, force=force))


if __name__ == "__main__":
    typer.run(main)
