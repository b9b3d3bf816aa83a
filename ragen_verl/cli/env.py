"""`ragen-verl env`: list, show, play and serve environments, a module each."""

from __future__ import annotations

import typer

from ragen_verl.cli.console import LazyGroup
from ragen_verl.cli.env_listing import list_environments
from ragen_verl.cli.env_play import play
from ragen_verl.cli.env_serve import serve
from ragen_verl.cli.env_show import show


class _Commands(LazyGroup):
    points = "ragen_verl.env_commands"


group = typer.Typer(no_args_is_help=True, cls=_Commands, help="List, show, play, check and serve environments.")
group.command("list")(list_environments)
group.command()(show)
group.command()(play)
group.command()(serve)

__all__ = ["group"]
