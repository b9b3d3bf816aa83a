"""Observations of gymnasium's spaces as text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from gymnasium import spaces

__all__ = ["plain", "too_large", "words"]

_MOST_NUMBERS = 512
_COLOURED = re.compile(r"\x1b\[[0-9;]*m(.+?)\x1b\[0m")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(drawing: Any) -> str:
    """Return an "ansi" rendering without escapes; coloured text is put in brackets, since it marks the player."""
    text = drawing if isinstance(drawing, str) else drawing.getvalue() if hasattr(drawing, "getvalue") else str(drawing)
    return _ESCAPE.sub("", _COLOURED.sub(r"[\1]", text)).strip("\n")


def too_large(space: spaces.Space) -> str | None:
    """Return why observations of `space` cannot be shown as text, or None where they can."""
    if isinstance(space, spaces.Dict):
        return next((why for inner in space.spaces.values() if (why := too_large(inner))), None)
    if isinstance(space, spaces.Tuple):
        return next((why for inner in space.spaces if (why := too_large(inner))), None)
    if isinstance(space, (spaces.Discrete, spaces.Text)):
        return None
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        count = int(np.prod(space.shape))
        return None if count <= _MOST_NUMBERS else f"{count} numbers, more than {_MOST_NUMBERS}"
    return f"the space {space} has no words for it"


def words(value: Any, space: spaces.Space, decimals: int) -> str:
    """Return an observation as text: rounded numbers, one line for each row of a matrix and each entry of a Dict."""
    if isinstance(space, spaces.Dict):
        return "\n".join(f"{key}: {_nested(value[key], inner, decimals)}" for key, inner in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        entries = enumerate(zip(value, space.spaces, strict=True), start=1)
        return "\n".join(f"{index}: {_nested(one, inner, decimals)}" for index, (one, inner) in entries)
    if isinstance(space, spaces.Text):
        return str(value)
    if isinstance(space, spaces.Discrete):
        return f"state {int(value)}"
    return _numbers(np.asarray(value), decimals)


def _nested(value: Any, space: spaces.Space, decimals: int) -> str:
    text = str(int(value)) if isinstance(space, spaces.Discrete) else words(value, space, decimals)
    return "\n" + text if "\n" in text else text


def _numbers(array: np.ndarray, decimals: int) -> str:
    if array.ndim == 0:
        return _number(array.item(), decimals)
    if array.ndim == 1:
        return " ".join(_number(one, decimals) for one in array.tolist())
    return ("\n" * (array.ndim - 1)).join(_numbers(row, decimals) for row in array)


def _number(value: Any, decimals: int) -> str:
    if isinstance(value, (bool, int)):
        return str(int(value))
    return f"{value + 0.0:.{decimals}f}" if round(value, decimals) else f"{0:.{decimals}f}"  # never "-0.00"
