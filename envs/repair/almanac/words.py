"""Words and lines of text."""

from __future__ import annotations

__all__ = ["common", "distance", "runs", "shifted", "slug", "wrap"]


def wrap(text: str, width: int) -> list[str]:
    """Lines of whole words, none longer than the width unless a word is."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def slug(title: str) -> str:
    """A title as a name in an address: small letters and digits, joined by hyphens."""
    kept = "".join(sign.lower() if sign.isalnum() else " " for sign in title)
    return "-".join(kept.split())


def runs(text: str) -> list[tuple[str, int]]:
    """Each sign with how often it stands there in a row."""
    found: list[tuple[str, int]] = []
    for sign in text:
        if found and found[-1][0] == sign:
            found[-1] = (sign, found[-1][1] + 1)
        else:
            found.append((sign, 1))
    return found


def shifted(text: str, places: int) -> str:
    """Small letters moved along the alphabet, around its end; other signs stay."""
    return "".join(chr((ord(sign) - 97 + places) % 26 + 97) if "a" <= sign <= "z" else sign for sign in text)


def distance(one: str, other: str) -> int:
    """The least number of letters to add, remove or replace to turn one word into the other."""
    row = list(range(len(other) + 1))
    for i, mine in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, theirs in enumerate(other, 1):
            changed = before if mine == theirs else before + 1
            before, row[j] = row[j], min(changed, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def common(texts: list[str]) -> str:
    """What all texts begin with."""
    if not texts:
        return ""
    low, high = min(texts), max(texts)
    length = 0
    while length < len(low) and low[length] == high[length]:
        length += 1
    return low[:length]
