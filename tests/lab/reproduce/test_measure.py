"""One run's numbers of every kind of statistic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from protocol_runs import compose, read
from ragen_lab.reproduce import results
from ragen_lab.reproduce.experiment_protocol import Event, Statistic
from ragen_lab.reproduce.judgement import Warnings
from ragen_lab.reproduce.measure import NotMeasured, label, measured

from ragen_verl.runs.folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Forty steps: reward spread falls below half of its start at 20, success at 30."""
    found = RunFolder(tmp_path / "run")
    found.path.mkdir()
    for step in range(1, 41):
        spread, success = (1.0 if step < 20 else 0.3), (0.6 if step < 30 else 0.1)
        found.log(step, {"spread": spread + step / 1000, "success": success, "mi": -success, "flat": 1.0})
    found.finish(recipe="r", seed=1)
    return found


def value(folder: RunFolder, tmp_path: Path, **statistic: Any) -> Any:
    one = Statistic(**statistic)
    protocol = read(tmp_path).protocol
    protocol = replace(protocol, statistic=one, comparisons=protocol.comparisons[:1])
    return measured(folder, protocol, {})["values"][label(one)]


def test_every_kind_of_statistic_is_taken(folder: RunFolder, tmp_path: Path) -> None:
    fallen, spread = Event("success", below=0.5, of="best", hold=3), Event("spread", below=0.5, of="first")
    assert value(folder, tmp_path, kind="final", metric="success", last=20) == pytest.approx((9 * 0.6 + 11 * 0.1) / 20)
    assert value(folder, tmp_path, kind="best", metric="success") == 0.6
    assert value(folder, tmp_path, kind="first", metric="spread") == 1.001
    assert value(folder, tmp_path, kind="correlation", metric="success", against="mi") == -1.0
    assert value(folder, tmp_path, kind="correlation", metric="success", against="step") < -0.7
    assert value(folder, tmp_path, kind="correlation", metric="success", against="flat") is None
    assert value(folder, tmp_path, kind="collapse", event=fallen) == {"step": 30, "collapsed": True}
    assert value(folder, tmp_path, kind="collapse", event=Event("success", below=0.05)) == {
        "step": 40,
        "collapsed": False,
    }
    assert value(folder, tmp_path, kind="lead", event=fallen, indicator=spread) == 10
    assert value(folder, tmp_path, kind="lead", event=fallen, indicator=Event("spread", above=9.0)) is None


def test_too_few_values_are_said(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match="40 of 50 values of success"):
        value(folder, tmp_path, kind="final", metric="success", last=50)
    with pytest.raises(NotMeasured, match="no value of other"):
        value(folder, tmp_path, kind="best", metric="other")


def test_warnings_are_counted_by_what_came_of_them() -> None:
    pairs = ((30, 50), (50, 50), (20, None), (None, None), (10, 45))
    found = Warnings.of([{"warned": warned, "collapsed": collapsed} for warned, collapsed in pairs])
    assert (found.runs, found.collapsed, found.leads, found.false) == (5, 3, (20, 35), 1)
    assert "2 with a warning before (20 to 35 steps, median 27.5); of the other 2 it warned in 1" in found.sentence


def test_no_run_is_an_empty_result(tmp_path: Path) -> None:
    sweep = read(tmp_path)
    assert results.collect(sweep, tmp_path / "none", compose) == {
        "schema": 1, "item": "small", "settings": {}, "runs": [], "left_out": [],
        "protocol": sweep.protocol.deciding(sweep.seeds),
    }  # fmt: skip
