"""The application: `train` and `resume`. The other commands are imported when one of them, or the help, is wanted."""

from __future__ import annotations

import typer

from ragen_verl.cli.console import TRACEBACK, LazyGroup
from ragen_verl.cli.resume import resume
from ragen_verl.cli.train import EPILOG, train

__all__ = ["app", "main"]


class _Commands(LazyGroup):
    points = "ragen_verl.commands"


app = typer.Typer(
    name="ragen-verl",
    cls=_Commands,
    no_args_is_help=True,
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
