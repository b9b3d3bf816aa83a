"""Runs and episodes in the terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragen_lab.report.reading import read_run
from ragen_lab.report.terminal import dashboard, episode, sparkline
from ragen_lab.report.trajectories import normalise
from rich.console import Console
from small_runs import small_run, trajectory

from ragen_verl.runs import lock


def printed(shown: object, width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(shown)
    return out.getvalue()


def test_the_view_of_a_run_has_curves_verdict_and_phases(tmp_path: Path) -> None:
    text = printed(dashboard(read_run(small_run(tmp_path, steps=60, spike=40).path)))
    for part in ("a/recipe", "finished", "step 60 of 8", "Success, held-out", "Entropy", "verdict: warning"):
        assert part in text
    assert "gradient_spike (warning)" in text and "update 42%" in text


def test_a_run_that_has_only_begun_shows_its_phase(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("{}")
    (tmp_path / "phase.txt").write_text("evaluating\x1b[2J")
    with lock.taken(tmp_path):
        text = printed(dashboard(read_run(tmp_path)))
    assert "evaluating\\x1b[2J" in text and "running" in text


def test_an_episode_is_shown_turn_by_turn() -> None:
    shown = normalise(trajectory(3, 0, 0).record())
    text = printed(episode(shown, "train step 3"))
    for part in ("Lake-v0", "train step 3, seed 0, sample 0", "solved", "turn 2, reward 1", "thought 1 of sample 0"):
        assert part in text
    assert "Right || Down" in text and "state 3 of seed 0" in text


def test_the_parts_of_a_reward_stand_beside_the_environments() -> None:
    record = trajectory(3, 0, 0).record()
    record["turns"][1]["rewards"] = {"environment": 0.5, "brevity/short": -0.25, "[red]\x1b": None}
    text = printed(episode(normalise(record), "train step 3"), width=200)
    assert "turn 2, reward 1, penalty 0, environment 0.5, brevity/short -0.25, [red]\\x1b -" in text
    assert "turn 1, reward 0, penalty 0" in text and text.count("brevity") == 1
    record["turns"][1]["rewards"] = [1]
    assert normalise(record)["turns"][1]["rewards"] == {}


def test_text_of_a_model_does_not_steer_or_style_the_terminal() -> None:
    record = trajectory(1, 1, 1, said=lambda *_: "[bold red]x[/] \x1b[31m\u202e\x9b2J").record()
    record["env"] = record["error"] = record["stop_reason"] = "[red]\x1b]0;title\x07"
    text = printed(episode(normalise(record), "train"), width=200)
    assert "[bold red]x[/] \\x1b[31m\\u202e\\x9b2J" in text
    assert not set("\x1b\x07\x9b\u202e") & set(text)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200))
def test_a_sparkline_is_as_long_as_it_may_be(values: list[float]) -> None:
    line = sparkline(values)
    assert len(line) == min(len(values), 40) and set(line) <= set("▁▂▃▄▅▆▇█")
    if len(values) <= 40 and max(values) - min(values) > 1e-3:
        assert line[values.index(max(values))] == "█" and line[values.index(min(values))] == "▁"


@pytest.mark.parametrize(("values", "line"), [([0, 7], "▁█"), ([3], "▁"), ([2, 2], "▁▁")])
def test_sparklines_by_example(values: list[float], line: str) -> None:
    assert sparkline(values) == line
