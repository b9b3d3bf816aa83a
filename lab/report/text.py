"""`visible`: show characters that change the look of other text as escapes."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["HIDDEN", "visible"]

HIDDEN = (
    (0x00, 0x08),  # control characters, without tab and line feed
    (0x0B, 0x1F),
    (0x7F, 0x9F),
    (0x061C, 0x061C),  # bidirectional marks, embeddings, overrides and isolates
    (0x200E, 0x200F),
    (0x202A, 0x202E),
    (0x2066, 0x2069),
    (0x200B, 0x200B),  # characters of no width; the joiners belong to words of several languages
    (0x2028, 0x2029),
    (0x2060, 0x2064),
    (0xFEFF, 0xFEFF),
    (0xD800, 0xDFFF),  # lone surrogates
    (0xE0000, 0xE007F),  # tags
)
"""First and last code point of every range that `visible` writes as an escape; the page's script reads it too."""

_HIDDEN = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in HIDDEN) + "]")


def visible(text: Any) -> str:
    """`text` as a string without characters that hide or reorder others or control a terminal.

    Each of them becomes an escape: `\\x1b`, `\\u202e`, `\\U000e0041`. Tabs and line feeds stay.
    """
    return _HIDDEN.sub(lambda found: _escape(ord(found[0])), str(text))


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
