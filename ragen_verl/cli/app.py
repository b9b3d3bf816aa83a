"""The application that the commands join, and what becomes of errors."""

from __future__ import annotations

import os
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from ragen_verl.errors import RecipeError

TRACEBACK = "RAGEN_VERL_TRACEBACK"


def console() -> Console:
    """Where commands print: as wide as the terminal, and wide enough for one line a row where it is none."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=160)


class Group(TyperGroup):
    """Commands whose RecipeError is one red sentence and exit code 2 instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with RAGEN_VERL_TRACEBACK=1 errors keep their traceback."""
        try:
            return super().invoke(ctx)
        except RecipeError as error:
            if os.environ.get(TRACEBACK) == "1":
                raise
            Console(stderr=True, highlight=False).print(str(error), style="bold red", markup=False, soft_wrap=True)
            raise typer.Exit(2) from None


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


# each module adds its commands to `app`; the order is that of `--help`
from ragen_verl.cli import train, sweep, verdict, doctor, nano_model, env, serve, recipes  # noqa: E402, F401, I001
