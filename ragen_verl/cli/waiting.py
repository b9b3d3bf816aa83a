"""What a command says while it is silent for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["waiting"]


@contextmanager
def waiting(sentence: str) -> Iterator[None]:
    """While open, a sentence with a spinner on the error stream; where that is no terminal, the sentence once."""
    out = Console(stderr=True, highlight=False, emoji=False)
    if out.is_terminal:
        with out.status(sentence):
            yield
    else:
        out.print(sentence, markup=False, soft_wrap=True)
        yield
