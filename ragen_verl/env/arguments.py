"""Checks of an environment's arguments; a wrong argument is refused in one sentence."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Any

from ragen_verl.errors import BadEnvKwargs

__all__ = ["check_choice", "check_number", "check_probability", "check_seconds", "check_switch", "check_whole"]


def check_whole(what: str, value: Any, low: int, high: float = inf) -> None:
    """Raise BadEnvKwargs unless `value` is an integer from `low` to `high`; `what` names the argument."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        words = f"of {low} or more" if high == inf else f"from {low} to {high}"
        raise BadEnvKwargs(f"{what} must be an integer {words}, not {value!r}.")


def check_number(what: str, value: Any, low: float = -inf, high: float = inf, words: str = "a number") -> None:
    """Raise BadEnvKwargs unless `value` is a number from `low` to `high`; `words` describe such a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise BadEnvKwargs(f"{what} must be {words}, not {value!r}.")


def check_probability(what: str, value: Any) -> None:
    """Raise BadEnvKwargs unless `value` is a number from 0 to 1."""
    check_number(what, value, 0, 1, "a probability between 0 and 1")


def check_seconds(what: str, value: Any) -> None:
    """Raise BadEnvKwargs unless `value` is a number above 0."""
    check_number(what, value, 1e-9, inf, "a number of seconds above 0")


def check_switch(what: str, value: Any) -> None:
    """Raise BadEnvKwargs unless `value` is true or false."""
    if not isinstance(value, bool):
        raise BadEnvKwargs(f"{what} must be true or false, not {value!r}.")


def check_choice(what: str, value: Any, choices: Collection[str]) -> None:
    """Raise BadEnvKwargs unless `value` is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise BadEnvKwargs(f"{what} must be one of {tuple(choices)}, not {value!r}.")
