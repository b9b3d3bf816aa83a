"""Which trajectories of a long run go into the page."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from ragen_lab.report.reading import read_run
from ragen_lab.report.selection import LONGEST, _by_interest, chosen, shortened
from small_runs import small_run


def test_where_all_fit_in_all_are_there(tmp_path: Path) -> None:
    found, total = chosen(read_run(small_run(tmp_path).path))
    assert total == sum(len(records) for records in found.values()) == 4 * 12 + 3 * 6
    assert [place for place in found if place[0] == "val"] == [("val", 0), ("val", 2), ("val", 4)]


def test_of_a_long_run_whole_groups_of_many_steps_are_there(tmp_path: Path) -> None:
    run = read_run(small_run(tmp_path, steps=40, spike=20, groups=8, turns=1).path)
    found, total = chosen(run, limit=400)
    assert total > 1200 and sum(map(len, found.values())) <= 400
    warned = run.verdict["first_warning"]
    assert {("train", 1), ("train", 40), ("val", 0), ("val", 40), ("train", warned)} <= set(found)
    for records in found.values():
        sizes = {seed: sum(one["seed"] == seed for one in records) for seed in (one["seed"] for one in records)}
        assert set(sizes.values()) <= {1, 4}


def test_held_out_states_are_the_same_at_every_step(tmp_path: Path) -> None:
    found, _ = chosen(read_run(small_run(tmp_path, steps=30, states=200, turns=1).path), limit=300)
    states = [[one["seed"] for one in records] for (split, _), records in found.items() if split == "val"]
    assert len(states) > 1 and all(one == max(states, key=len)[: len(one)] for one in states)


@given(st.dictionaries(st.sampled_from(["train", "val"]), st.sets(st.integers(0, 99), min_size=1), min_size=1))
def test_every_step_comes_once_and_ends_come_first(steps: dict[str, set[int]]) -> None:
    places = [(split, step) for split, found in steps.items() for step in found]
    order = _by_interest(places, set())
    assert sorted(order) == sorted(places)
    ends = {(split, end(found)) for split, found in steps.items() for end in (min, max)}
    assert set(order[: len(ends)]) == ends


def test_a_huge_text_is_shortened_and_says_so() -> None:
    assert shortened("a" * LONGEST) == "a" * LONGEST
    assert shortened("a" * (LONGEST + 1500)).endswith("[1,500 more characters are in the trajectories' file]")
