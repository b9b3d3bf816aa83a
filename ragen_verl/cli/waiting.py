"""What a command says while it is silent for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.text import Text

from ragen_verl.cli.console import console

__all__ = ["waiting"]


@contextmanager
def waiting(sentence: str) -> Iterator[None]:
    """While open, a sentence with a spinner on the error stream; where that is no terminal, the sentence once."""
    out = console(stderr=True)
    if out.is_terminal:
        with out.status(Text(sentence)):
            yield
    else:
        out.print(sentence, soft_wrap=True)
        yield
