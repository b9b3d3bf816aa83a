"""Tables in Markdown, as the pages of evaluations, gates, exports and experiments have them."""

from __future__ import annotations

from ragen_lab.markdown import table


def test_a_table_has_a_head_a_rule_and_a_line_per_row() -> None:
    assert table(["name", "rate"], [["a", "1"], ["b", "2"]]) == [
        "| name | rate |",
        "|---|---|",
        "| a | 1 |",
        "| b | 2 |",
    ]


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    assert table(["name", "rate", "error"], [], numbers_from=1) == ["| name | rate | error |", "|---|---:|---:|"]
