"""`ragen-verl env`: list, show, play and serve environments, a module each, imported when one of them is asked for."""

from __future__ import annotations

import typer
from typer.main import get_group

from ragen_verl.cli.console import LazyGroup

__all__ = ["group"]


class _Commands(LazyGroup):
    points = "ragen_verl.env_commands"

    def _complete_it(self) -> None:
        if not self._complete:
            self.commands.update(get_group(_own()).commands)
        super()._complete_it()


def _own() -> typer.Typer:
    """The layer's commands, whose modules load gymnasium."""
    from ragen_verl.cli.env_listing import list_environments
    from ragen_verl.cli.env_play import play
    from ragen_verl.cli.env_serve import serve
    from ragen_verl.cli.env_show import show

    own = typer.Typer()
    own.command("list")(list_environments)
    own.command()(show)
    own.command()(play)
    own.command()(serve)
    return own


group = typer.Typer(no_args_is_help=True, cls=_Commands, help="List, show, play, check and serve environments.")
