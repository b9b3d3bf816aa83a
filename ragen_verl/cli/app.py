"""The application: the layer's commands, and those that installed packages add (the laboratory, for one)."""

from __future__ import annotations

import typer

from ragen_verl.cli.console import TRACEBACK, Group
from ragen_verl.cli.doctor import doctor
from ragen_verl.cli.env import group
from ragen_verl.cli.recipes import recipes
from ragen_verl.cli.resume import resume
from ragen_verl.cli.train import EPILOG, train
from ragen_verl.declarations import declarations

__all__ = ["COMMANDS", "app", "main"]

COMMANDS = "ragen_verl.commands"
"""The entry-point group of functions that add commands: they are called with the application."""

app = typer.Typer(
    name="ragen-verl",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Train language-model agents over many turns with stock verl.",
    epilog=f"{TRACEBACK}=1 shows where an error came from.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from ragen_verl import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Train language-model agents over many turns with stock verl."""


app.command(epilog=EPILOG)(train)
app.command()(resume)
app.command()(recipes)
app.add_typer(group, name="env")
app.command()(doctor)
for point in declarations(COMMANDS)[0]:
    point.load()(app)
