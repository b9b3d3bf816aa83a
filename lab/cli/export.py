"""`ragen-verl export`."""

from __future__ import annotations

from pathlib import Path

import typer

from ragen_verl.cli.console import console
from ragen_verl.cli.waiting import waiting

__all__ = ["export"]


def export(
    run: Path = typer.Argument(help="A run's folder."),
    checkpoint: str = typer.Option("last", help="best, last, before_warning or a step."),
    out: Path = typer.Option(None, help="Folder to write.  \\[default: RUN/exports/CHECKPOINT]"),
) -> None:
    """Write a checkpoint as a Hugging Face folder that transformers and vLLM load, with a model card.

    The weights keep the dtype that they were trained in.
    """
    from ragen_lab.convert.export import export as write
    from ragen_lab.convert.export import find

    from ragen_verl.runs.folder import RunFolder

    folder = RunFolder(run)
    target = out or folder.path / "exports" / find(folder, checkpoint).name
    with waiting("verl merges the shards (a quarter of a minute, and longer for a large model) ..."):
        write(folder, checkpoint, target)
    console().print(f"Written to {target}.", soft_wrap=True)
