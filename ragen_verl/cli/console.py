"""The console of the commands, and the handling of their errors."""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_group

from ragen_verl.declarations import declarations
from ragen_verl.errors import RecipeError, adding

__all__ = ["TRACEBACK", "Group", "LazyGroup", "console"]

TRACEBACK = "RAGEN_VERL_TRACEBACK"


def console(stderr: bool = False) -> Console:
    """The console of a command, without markup and emoji; without a terminal wide enough for one line per row."""
    plain: dict[str, Any] = {"stderr": stderr, "highlight": False, "emoji": False, "markup": False}
    out = Console(**plain)
    return out if out.is_terminal or stderr else Console(**plain, width=200)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """While open, a warning about an unreadable part of a file is one line on stderr, without its place in the code."""
    out, before = console(stderr=True), warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if category.__name__ == "TrajectoryWarning":  # by its name, since its module loads numpy
            out.print(str(message), style="yellow", soft_wrap=True)
        else:
            before(message, category, *place)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UserWarning, module="ragen_")
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _missing(error: ModuleNotFoundError) -> str | None:
    """The sentence for a package that an extra of this one installs; None for any other."""
    module = (error.name or "").partition(".")[0].lower()
    for line in metadata.requires("ragen-verl") or []:
        name = re.match(r"[\w.-]+", line)[0].replace("-", "_").lower()
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if extra and name == module:
            return f"This needs {name}, which is not installed: {adding(extra[1])}."
    return None


class Group(TyperGroup):
    """Commands whose RecipeError, or missing extra, is one red sentence and exit code 2 instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with RAGEN_VERL_TRACEBACK=1 errors keep their traceback."""
        for stream in (sys.stdout, sys.stderr):  # a terminal without UTF-8 gets ? for what it cannot show
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            with _plain_warnings():
                return super().invoke(ctx)
        except (RecipeError, ModuleNotFoundError) as error:
            said = str(error) if isinstance(error, RecipeError) else _missing(error)
            if os.environ.get(TRACEBACK) == "1" or said is None:
                raise
            console(stderr=True).print(said, style="bold red", soft_wrap=True)
            raise typer.Exit(2) from None


class LazyGroup(Group):
    """Commands to which installed packages add others: these are imported when one of them, or the help, is asked for.

    Attributes:
        points: the entry-point group of functions that are called with a `typer.Typer` and add commands to it.
    """

    points: str
    _complete = False

    def _complete_it(self) -> None:
        if not self._complete:
            self._complete = True
            for point in sorted(declarations(self.points)[0], key=lambda one: one.name):
                more = typer.Typer()
                point.load()(more)
                self.commands.update(get_group(more).commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name."""
        if cmd_name not in self.commands:
            self._complete_it()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, in the order of the help."""
        self._complete_it()
        return super().list_commands(ctx)
