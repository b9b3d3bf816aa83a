"""Numbers as people write them."""

from __future__ import annotations

__all__ = [
    "DIGITS",
    "HUNDREDS",
    "ROMAN",
    "THOUSANDS",
    "VALUES",
    "from_roman",
    "grouped",
    "in_base",
    "ordinal",
    "to_roman",
]

THOUSANDS = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"))
HUNDREDS = ((100, "C"), (90, "XC"), (50, "L"), (40, "XL"))
ROMAN = (*THOUSANDS, *HUNDREDS, (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def to_roman(number: int) -> str:
    """A number above 0 in Roman numerals."""
    text = ""
    for value, letters in ROMAN:
        while number >= value:
            text += letters
            number -= value
    return text


def from_roman(text: str) -> int:
    """The value of a Roman numeral."""
    total, last = 0, 0
    for letter in reversed(text):
        value = VALUES[letter]
        total += value if value >= last else -value
        last = max(last, value)
    return total


def in_base(number: int, base: int) -> str:
    """A number in a base from 2 to 36, with a sign where it is below 0."""
    if number < 0:
        return "-" + in_base(-number, base)
    text = DIGITS[number % base]
    while number >= base:
        number //= base
        text = DIGITS[number % base] + text
    return text


def ordinal(number: int) -> str:
    """A number with its English ending: 1st, 2nd, 3rd, 4th, 11th."""
    if 10 < number % 100 < 14:
        return f"{number}th"
    return f"{number}" + {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def grouped(number: int) -> str:
    """A number with a comma before every third digit from the right."""
    sign, digits = ("-" if number < 0 else ""), str(abs(number))
    first = len(digits) % 3
    parts = [digits[:first]] if first else []
    parts += [digits[at : at + 3] for at in range(first, len(digits), 3)]
    return sign + ",".join(parts)
