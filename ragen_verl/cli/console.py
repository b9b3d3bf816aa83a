"""Where commands print, and what becomes of their errors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def plain_warnings() -> Iterator[None]:
    """While open, a warning is one line on the error stream, without the place in the code that gave it."""
    out = Console(stderr=True, highlight=False)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: out.print(str(message), style="yellow", markup=False, soft_wrap=True)
        yield


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
