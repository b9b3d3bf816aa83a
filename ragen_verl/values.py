"""Checks of a recipe's values against the types of their readers. A refusal is one sentence with the full key."""

from __future__ import annotations

import math
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any

from annotated_types import BaseMetadata, GroupedMetadata, Interval

from ragen_verl.errors import RecipeError

__all__ = ["POSITIVE", "SHARE", "Accepts", "Unit", "bounds", "checked"]


@dataclass(frozen=True)
class Accepts:
    """A condition on a value besides its type: a test of the converted value, and its words in the error message.

    In the signature of a plugin it stands beside the type, `Annotated[str, Accepts(str.isupper, "text in capitals")]`,
    where bounds of annotated-types cannot say it: `Annotated[float, Gt(0)]`, `Annotated[int, Interval(ge=1, le=9)]`.
    """

    test: Callable[[Any], bool]
    words: str


Unit = Annotated[float, Interval(ge=0, le=1)]
"""An option that is a number from 0 to 1."""

POSITIVE = Accepts(lambda value: value > 0, "a number above 0")
SHARE = Accepts(lambda value: 0 < value <= 1, "a number above 0 and at most 1")

_LIMITS = {"gt": "above {}", "ge": "of {} or more", "lt": "below {}", "le": "at most {}"}
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def checked(
    hint: Any,
    value: Any,
    path: str,
    accepts: Accepts | None = None,
    block: Callable[[type, Any, str], Any] | None = None,
    end: str = "",
) -> Any:
    """Check a value against `hint` and `accepts`, and return it; whole numbers are taken for floats, lists for tuples.

    Args:
        hint: bool, int, float, str, a tuple, list or dict, a Literal, one of these `| None`, or `Annotated` with an
            `Accepts` or with bounds of annotated-types. Any other annotation takes every value.
        value: as in the recipe.
        path: the key's full name, for the message.
        accepts: a condition on the value besides its type.
        block: makes a dataclass from the value, where the hint is a dataclass.
        end: the end of the message, before its full stop.

    Raises:
        RecipeError: the value has another type or does not meet the condition.
    """
    hint, optional = _without_none(hint)
    if optional:
        if value is None:
            return None
        end = f" or null{end}"
    if typing.get_origin(hint) is Annotated:
        hint, *notes = typing.get_args(hint)
        accepts = next((one for one in notes if isinstance(one, Accepts)), None) or bounds(hint, notes) or accepts
    origin = typing.get_origin(hint) or hint
    if block and is_dataclass(hint):
        return block(hint, value, path)  # type: ignore[arg-type]  # a hint is a class
    if origin in (tuple, list):
        value = _items(hint, value, path, block, end)
    elif origin is dict:
        if not isinstance(value, Mapping):
            raise RecipeError(f"{path} is {value!r} but has to be a block of keys{end}.")
        value = dict(value)
    elif origin is typing.Literal:
        names = typing.get_args(hint)
        accepts = Accepts(lambda given: given in names, "one of " + ", ".join(map(str, names)))
    elif hint in _WORDS:
        value = _scalar(hint, value, path, accepts, end)
    if accepts and not accepts.test(value):
        raise RecipeError(f"{path} is {value!r} but has to be {accepts.words}{end}.")
    return value


def bounds(hint: Any, notes: Iterable[Any]) -> Accepts | None:
    """The bounds of annotated-types among the notes of an `Annotated` as one condition; None where there are none.

    Raises:
        RecipeError: a note of annotated-types that is no bound.
    """
    flat = [part for one in notes for part in (one if isinstance(one, GroupedMetadata) else [one])]
    limits = {}
    for one in flat:
        if isinstance(one, BaseMetadata):
            name = type(one).__name__.lower()
            if name not in _LIMITS:
                raise RecipeError(f"{one!r} beside a type is no bound: use Gt, Ge, Lt, Le or Interval, or Accepts.")
            limits[name] = getattr(one, name)
    if not limits:
        return None
    kind = "a whole number" if hint is int else "a number"
    told = " and ".join(_LIMITS[name].format(limit) for name, limit in limits.items())
    words = f"{kind} from {limits['ge']} to {limits['le']}" if limits.keys() == {"ge", "le"} else f"{kind} {told}"
    return Accepts(lambda value: all(getattr(operator, name)(value, one) for name, one in limits.items()), words)


def _without_none(hint: Any) -> tuple[Any, bool]:
    """`X | None` as X and True; any other union takes every value."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint, False
    kinds = [one for one in typing.get_args(hint) if one is not types.NoneType]
    return kinds[0] if len(kinds) == 1 else Any, len(kinds) < len(typing.get_args(hint))


def _items(hint: Any, value: Any, path: str, block: Callable | None, end: str) -> tuple | list:
    if not isinstance(value, list | tuple):
        raise RecipeError(f"{path} is {value!r} but has to be a list{end}.")
    kind, items = typing.get_origin(hint) or hint, typing.get_args(hint) or (Any, ...)
    if kind is list or items[1:] == (...,):
        items = items[:1] * len(value)
    if len(items) != len(value):
        raise RecipeError(f"{path} is {value!r} but has to be a list of {len(items)}{end}.")
    each = zip(items, value, strict=True)
    return kind(checked(item, one, f"{path}[{i}]", None, block) for i, (item, one) in enumerate(each))


def _scalar(hint: type, value: Any, path: str, accepts: Accepts | None, end: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    infinite = isinstance(value, float) and not math.isfinite(value)
    if infinite or not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        words = accepts.words if accepts and hint in (float, str) else _WORDS[hint]
        raise RecipeError(f"{path} is {value!r} but has to be {words}{end}.")
    return value
