"""Characters that hide, reorder or steer are shown as escapes, in Python and in the page alike."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from ragen_lab.report.text import HIDDEN, visible

REORDERING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def test_hidden_characters_become_escapes() -> None:
    assert visible("a\x1b[31m\u202eb\ud800\U000e0041\u200b\ufeff") == (
        "a\\x1b[31m\\u202eb\\ud800\\U000e0041\\u200b\\ufeff"
    )


def test_words_of_all_languages_and_line_ends_stay() -> None:
    text = "Größe\t漢字\nمی‌خواهم 👩‍🚀 क्‍ष"
    assert visible(text) == text


@given(st.text(st.characters()))
def test_nothing_is_left_that_steers_a_terminal_or_reorders(text: str) -> None:
    shown = visible(text)
    shown.encode()
    for character in shown:
        assert character in "\t\n" or unicodedata.category(character) not in ("Cc", "Cs")
        assert unicodedata.bidirectional(character) not in (
            "LRE",
            "RLE",
            "LRO",
            "RLO",
            "PDF",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        )


def test_ranges_are_in_order_and_apart() -> None:
    assert all(first <= last for first, last in HIDDEN)
    assert len({one for first, last in HIDDEN for one in range(first, last + 1)}) == sum(
        last - first + 1 for first, last in HIDDEN
    )
