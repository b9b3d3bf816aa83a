"""The layer's commands other than `train` and `resume`; the entry point `ragen_verl.commands` names this module."""

from __future__ import annotations

import typer

from ragen_verl.cli.doctor import doctor
from ragen_verl.cli.env import group
from ragen_verl.cli.recipes import recipes

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    """Add `recipes`, `env` and `doctor` to the application."""
    app.command()(recipes)
    app.add_typer(group, name="env")
    app.command()(doctor)
