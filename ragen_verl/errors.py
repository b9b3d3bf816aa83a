"""Exceptions for mistakes of the user. Each message is one sentence that says what to change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

__all__ = ["BadEnvKwargs", "MissingExtra", "RecipeError", "UnknownEnv", "adding", "adding_package", "nearest"]


class RecipeError(ValueError):
    """A recipe, an override or an argument that cannot work; raised before any worker starts."""


class UnknownEnv(RecipeError):
    """No environment is registered under this id."""


class BadEnvKwargs(RecipeError):
    """The environment does not take these arguments."""


class MissingExtra(RecipeError, ImportError):
    """An optional package is needed and not installed; the message names the command that adds it."""


def adding(extra: str) -> str:
    """The command that adds an extra of this package, for error messages; see `adding_package`."""
    return adding_package(f'"ragen-verl[{extra}]"')


def adding_package(package: str) -> str:
    """The command that adds a package, for error messages.

    In a checkout `make add` keeps the tested versions. pip would replace some of them, since the pins of verl and of
    vLLM's CPU build exclude each other.
    """
    return f"make add PACKAGE={package} in a checkout, pip install {package} elsewhere"


def nearest(name: object, known: Iterable[str] | Mapping[str, str]) -> str:
    """The end of an error message about an unknown name: the nearest known one, or all of them.

    Args:
        name: the unknown name.
        known: the known names; or a mapping from the text that `name` is compared with to the name that is shown.
    """
    shown = known if isinstance(known, Mapping) else {one: one for one in known}
    names = {one.casefold(): shown[one] for one in sorted(shown)}
    close = get_close_matches(str(name).casefold(), names, n=1)
    return f"did you mean {names[close[0]]}?" if close else f"known are {', '.join(names.values()) or 'none'}."
