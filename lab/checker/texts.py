"""Texts that a model might write and an environment must survive."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["HOSTILE", "spellings"]

#: Empty and huge texts, control characters, code, similar characters, nested tags, invalid numbers; ordered by length.
HOSTILE: tuple[str, ...] = (
    "",
    " \t\n",
    "None",
    "nan",
    "-inf",
    "1/0",
    "\\frac{1}{0}",
    "9**9**9",
    "1e999999999",
    "\x00\x1b[2J\r",
    "\ud800",
    "１＋２ Ｕｐ",
    "٣ ² ①",
    "%s {0} {} {x!r} $HOME",
    "[bold]x[/]",
    "<answer><answer>1</answer></answer>",
    "search[click[",
    "search[]",
    "click[\n]",
    "'; DROP TABLE products; --",
    "__import__('os').abort()",
    "().__class__.__bases__[0].__subclasses__()",
    "ÅÅ\u202e\u200d" * 50,
    "row 1 column 1 is ٣",
    "####" * 2_000,
    "\\boxed{" * 1_400,
    ",000" * 2_400 + "x",
    "-" * 100_000 + "1",
    "(" * 100_000 + "1" + ")" * 100_000,
    "1/" * 500_000,
    "1," * 500_000,
    "9" * 1_000_000,
    " " * 1_000_000 + "x",
    "a" * 1_000_000,
)


def spellings(names: Sequence[str]) -> dict[str, str]:
    """Other spelling -> action name, for some of these names."""
    return {variant: name for name in names[:3] for variant in (name.upper(), name.lower(), f"  {name}\n")}
