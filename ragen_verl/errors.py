"""What a user can get wrong, as exceptions whose message is one sentence that says what to change."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class RecipeError(ValueError):
    """A recipe, an override or an argument that cannot work; raised before any worker starts."""


class UnknownEnv(RecipeError):
    """No environment is registered under this id."""


class BadEnvKwargs(RecipeError):
    """The environment does not take these arguments."""


class MissingExtra(RecipeError, ImportError):
    """An optional package is needed and not installed; the message names the `pip install` that adds it."""


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest known one, or all of them."""
    names = {one.casefold(): one for one in sorted(known)}
    close = get_close_matches(str(name).casefold(), names, n=1)
    return f"did you mean {names[close[0]]}?" if close else f"known are {', '.join(names.values()) or 'none'}."
