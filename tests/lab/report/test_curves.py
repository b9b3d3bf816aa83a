"""Panels, intervals, warnings and places of a run's curves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from ragen_lab.report.curves import MOST_POINTS, Drawing, Line, Panel, _ticks, drawings, intervals, marks
from ragen_lab.report.reading import read_run
from ragen_lab.statistics import rate
from scipy.stats import binomtest
from small_runs import CONFIG, small_run, trajectory

PANEL = Panel("A", "unit", {"training": "a"}, log=True)


def drawing(points: list[tuple[int, float]], panel: Panel = PANEL) -> Drawing:
    return Drawing(panel, [Line(0, "training", [(step, value, None, None) for step, value in points])])


def test_all_six_panels_of_a_run_are_drawn(tmp_path: Path) -> None:
    titles = [one.panel.title for one in drawings([read_run(small_run(tmp_path, steps=6).path)])]
    assert titles == [
        "Success",
        "Return",
        "In-group standard deviation",
        "Entropy",
        "Gradient norm",
        "Reasoning length",
    ]


def test_the_interval_is_wilsons(tmp_path: Path) -> None:
    run = read_run(small_run(tmp_path, states=9).path)
    ends = intervals(run)
    assert sorted(ends) == [0, 2, 4]
    wins = sum(one["outcome"] == "solved" for one in run.records("val", 2))
    wilson = binomtest(wins, 9).proportion_ci(method="wilson")
    assert ends[2] == pytest.approx((wilson.low, wilson.high))


def test_several_episodes_of_a_state_are_not_independent(tmp_path: Path) -> None:
    folder = small_run(tmp_path, steps=2)
    config = OmegaConf.merge(CONFIG, {"actor_rollout_ref": {"rollout": {"val_kwargs": {"n": 3}}}})
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(config))
    records = [trajectory(2, seed, i).record() for seed in range(4) for i in range(2)]
    folder.write_trajectories("val", 2, records)
    expected = rate([[one["success"] for one in records if one["seed"] == seed] for seed in range(4)])
    assert intervals(read_run(tmp_path))[2] == pytest.approx((expected.low, expected.high))


def test_warnings_are_marked_where_they_fired(tmp_path: Path) -> None:
    run = read_run(small_run(tmp_path, steps=60, spike=40).path)
    (mark,) = marks(run)
    assert (mark.number, mark.cause, mark.level, mark.metric) == (1, "gradient_spike", "warning", "actor/grad_norm")
    assert mark.step == run.verdict["first_warning"] and mark.advice
    assert all(one.marks == [mark] for one in drawings([run]))


def test_without_a_verdict_the_flags_of_the_metrics_count(tmp_path: Path) -> None:
    folder = small_run(tmp_path, steps=2)
    folder.verdict.unlink()
    for step in (3, 4):
        folder.log(step, {"verdict/entropy_collapse": 1.0, "verdict/warnings": 1.0, "verdict/length_collapse": 0.0})
    assert [(mark.step, mark.cause) for mark in marks(read_run(tmp_path))] == [(3, "entropy_collapse")]


@pytest.mark.parametrize("findings", [7, [7], [{"step": "x"}], [{"step": 1, "evidence": 3}], {"step": 1}])
def test_a_verdict_of_another_form_does_no_harm(tmp_path: Path, findings: object) -> None:
    folder = small_run(tmp_path, steps=1)
    folder.verdict.write_text(json.dumps({"findings": findings, "collapsed": findings, "status": 3}))
    assert len(marks(read_run(tmp_path))) <= 1


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-3.0, 2.0], [1e-9, 1e9], [0.0, 1e300], [0.3, 0.31]])
def test_every_value_is_inside_its_panel(values: list[float]) -> None:
    made = drawing(list(enumerate(values)))
    places = [(made.x(step), made.y(value)) for step, value in enumerate(values)]
    assert all(42 <= x <= 350 and 20 <= y <= 176 for x, y in places)
    assert made.low <= min(values) and made.high >= max(values)
    if values[-1] > values[0]:
        assert places[-1][1] <= places[0][1]


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 8))
def test_ticks_are_few_and_around_the_values(low: float, width: float, most: int) -> None:
    ticks = _ticks(low, low + width, most)
    assert 2 <= len(ticks) <= most + 1
    assert ticks[0] <= low + 1e-9 * abs(low) and low + width <= ticks[-1] + 1e-9 * abs(ticks[-1])
    steps = _ticks(0, int(width) + 1, most, least=1.0)
    assert len(steps) <= most + 1 and all(one == int(one) for one in steps)


def test_wild_values_get_a_logarithmic_axis() -> None:
    assert drawing([(1, 0.1), (2, 100.0)]).log
    assert not drawing([(1, 0.1), (2, 1.0)]).log
    assert not drawing([(1, 0.0), (2, 100.0)]).log


def test_a_long_line_keeps_its_extremes() -> None:
    points = [(step, float(step % 7)) for step in range(20_000)]
    points[12_345] = (12_345, 500.0)
    made = drawing(points)
    path = made.path(made.lines[0])
    assert path.count("L") < 2 * MOST_POINTS
    assert f"{made.x(12_345)} {made.y(500.0)}" in path
