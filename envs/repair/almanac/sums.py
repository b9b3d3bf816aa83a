"""A calculator for whole numbers: sums like `2*(3+4)-1`."""

from __future__ import annotations

__all__ = ["balanced", "evaluate", "tokens"]


def tokens(text: str) -> list[str]:
    """Numbers, signs and brackets, one after the other."""
    found, number = [], ""
    for sign in text + " ":
        if sign.isdigit():
            number += sign
            continue
        if number:
            found.append(number)
            number = ""
        if sign != " ":
            found.append(sign)
    return found


def evaluate(text: str) -> int:
    """The value; `*` and `/` (rounded down) go before `+` and `-`."""
    value, rest = _sum(tokens(text))
    if rest:
        raise ValueError(rest[0])
    return value


def balanced(text: str) -> bool:
    """Whether every bracket is closed by its own kind."""
    pairs, opened = {")": "(", "]": "[", "}": "{"}, []
    for sign in text:
        if sign in pairs.values():
            opened.append(sign)
        elif sign in pairs and (not opened or opened.pop() != pairs[sign]):
            return False
    return not opened


def _sum(rest: list[str]) -> tuple[int, list[str]]:
    value, rest = _product(rest)
    while rest and rest[0] in "+-":
        other, after = _product(rest[1:])
        value, rest = (value + other if rest[0] == "+" else value - other), after
    return value, rest


def _product(rest: list[str]) -> tuple[int, list[str]]:
    value, rest = _factor(rest)
    while rest and rest[0] in "*/":
        other, after = _factor(rest[1:])
        value, rest = (value * other if rest[0] == "*" else value // other), after
    return value, rest


def _factor(rest: list[str]) -> tuple[int, list[str]]:
    if rest[0] == "-":
        value, after = _factor(rest[1:])
        return -value, after
    if rest[0] == "(":
        value, after = _sum(rest[1:])
        return value, after[1:]
    return int(rest[0]), rest[1:]
