"""What a user can get wrong, as exceptions whose message is one sentence that says what to change."""

from __future__ import annotations


class RecipeError(ValueError):
    """A recipe, an override or an argument that cannot work; raised before any worker starts."""


class UnknownEnv(RecipeError):
    """No environment is registered under this id."""


class BadEnvKwargs(RecipeError):
    """The environment does not take these arguments."""


class MissingExtra(RecipeError, ImportError):
    """An optional package is needed and not installed; the message names the `pip install` that adds it."""
