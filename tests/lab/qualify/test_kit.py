"""How the kit runs its parts: limits, failures, stopping, going on, the page."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest
from ragen_lab.qualify import kit as kit_module
from ragen_lab.qualify import part as part_module
from ragen_lab.qualify import timetable
from ragen_lab.qualify.findings import Outcome, Status
from ragen_lab.qualify.kit import Kit, check
from ragen_lab.qualify.page import cell, points, render

from ragen_verl.errors import RecipeError

SLEEPER = """
import subprocess, sys, time
from ragen_lab.qualify.findings import Outcome
def run(outcome, settings):
    children = [subprocess.Popen(["sleep", "600"], start_new_session=one) for one in (False, True)]
    outcome.row("children", pids=[one.pid for one in children])
    settings["save"]()
    time.sleep(600)
"""
FAILING = """
def run(outcome, settings):
    raise ValueError("no such thing")
"""
GOOD = """
def run(outcome, settings):
    outcome.check("numbers", "one", 1.0, 2.0)
    outcome.judge(f"well on {settings['device']}")
"""
DYING = """
import os
def run(outcome, settings):
    os._exit(3)
"""


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    """A kit of four parts, written for the test."""
    texts = {"sleeper": SLEEPER, "failing": FAILING, "good": GOOD, "dying": DYING}
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    # the children read it as well: modules of the package are looked for in this folder too
    (folder / "sitecustomize.py").write_text(
        "from ragen_lab import qualify\nfrom ragen_lab.qualify import timetable\n"
        f"qualify.__path__.append({str(folder)!r})\n"
        f"timetable.PARTS.update({{name: timetable.Part(name, name, 0.1, 30) for name in {list(texts)!r}}})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(timetable, "PARTS", {name: timetable.Part(name, name, 0.1, 30) for name in texts})
    return Kit(tmp_path / "out", "cpu", 5)


def run(kit: Kit, *names: str, **limits: float) -> dict[str, Outcome]:
    found: list[Outcome] = []
    kit.run(names, found.append, limits)
    return {one.part: one for one in found}


def test_a_part_past_its_limit_is_ended_with_all_it_started(kit: Kit) -> None:
    found = run(kit, "sleeper", "good", sleeper=8.0)
    assert found["sleeper"].status is Status.FAIL and "limit of 8 s" in found["sleeper"].sentence
    pids = found["sleeper"].tables["children"][0]["pids"]  # what it had found is kept
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)
    assert found["good"].status is Status.PASS


def test_a_part_that_fails_or_dies_stops_no_other(kit: Kit) -> None:
    found = run(kit, "failing", "dying", "good")
    assert found["failing"].sentence == "ValueError: no such thing"
    assert "code 3" in found["dying"].sentence
    assert [one.status for one in found.values()] == [Status.FAIL, Status.FAIL, Status.PASS]
    assert found["good"].sentence == "well on cpu"


def test_finished_parts_are_kept_unless_versions_differ(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    run(kit, "good")
    before = kit.file("good").stat().st_mtime_ns
    run(kit, "good")
    assert kit.file("good").stat().st_mtime_ns == before
    monkeypatch.setattr(kit_module, "version", lambda name: "0.0")
    run(kit, "good")
    assert kit.file("good").stat().st_mtime_ns > before


def test_a_failed_part_is_run_again(kit: Kit) -> None:
    run(kit, "failing")
    before = kit.file("failing").stat().st_mtime_ns
    time.sleep(0.01)
    run(kit, "failing")
    assert kit.file("failing").stat().st_mtime_ns > before


def test_a_part_cut_short_is_reported_as_such(kit: Kit) -> None:
    kit.file("good").parent.mkdir(parents=True)
    started = Outcome("good")
    started.row("numbers", value=1.0)
    started.write(kit.file("good"))
    (found,) = kit.outcomes()
    assert found.status is Status.SKIPPED and found.tables["numbers"] == [{"value": 1.0}]


def test_wrong_arguments_are_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit_module, "nvidia_smi", list)
    assert check(None, 5, []) == ("cpu", list(timetable.PARTS))
    assert check("cpu", 20, ["memory", "engine"])[1] == ["engine", "memory"]
    for arguments, says in {
        ("cuda", 5, ()): "lists no GPU",
        ("cpu", 7, ()): "use 5, 20, 60",
        ("tpu", 5, ()): "use cuda or cpu",
        ("cpu", 5, ("memroy",)): "memory",
    }.items():
        with pytest.raises(RecipeError, match=says):
            check(*arguments)


def test_not_a_number_passes_no_check() -> None:
    outcome = Outcome("engine")
    outcome.check("numbers", "high", float("nan"), 1.0)
    outcome.check("numbers", "low", float("nan"), 1.0, least=True)
    outcome.judge("fine")
    assert outcome.status is Status.FAIL and outcome.sentence == "2 of the checks failed: high; low."


def test_larger_shapes_need_more_minutes_and_memory() -> None:
    def shapes(minutes: int, memory: float, device: str = "cuda") -> list[str]:
        return timetable.settings("throughput", minutes, device, memory)["shapes"]

    assert shapes(60, 80) == ["Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-3B"]
    assert shapes(20, 80) == shapes(60, 48) == ["Qwen2.5-0.5B", "Qwen2.5-1.5B"]
    assert shapes(5, 80) == shapes(60, 24) == ["Qwen2.5-0.5B"]
    assert shapes(60, 0, "cpu") == ["tiny"]


def test_the_shares_of_the_parts_are_the_whole() -> None:
    assert sum(one.share for one in timetable.PARTS.values()) == pytest.approx(1)


def test_the_page_shows_everything_and_escapes_it(tmp_path: Path) -> None:
    outcome = Outcome("learning", Status.PASS, "<b>well</b>", 3.0, curve=[(0, 0.2), (10, 0.8)])
    outcome.check("learning", "success & more", 0.6, 0.1, least=True)
    outcome.row("learning", other=None)
    outcome.write(tmp_path / "learning.json")
    kit = Kit(tmp_path, "cpu", 5)
    (tmp_path / "parts").mkdir()
    outcome.write(kit.file("learning"))
    text = render(json.loads(json.dumps(kit.report())))
    assert "&lt;b&gt;well" in text and "success &amp; more" in text and "<b>well" not in text
    assert '<td class="yes">yes</td>' in text and points(outcome.curve) in text
    assert "<script" not in text and "http" not in text.replace("http-equiv", "")


def test_numbers_of_the_page_have_four_digits() -> None:
    assert [cell(one) for one in (None, True, 12345.6, 0.000123456, 3, "x")] == [
        "-",
        "yes",
        "12,346",
        "0.0001235",
        "3",
        "x",
    ]


def test_an_outcome_that_was_cut_in_half_is_none(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_text('{"part": "x"')
    assert Outcome.read(file) is None and Outcome.read(tmp_path / "other.json") is None


def test_what_a_part_raises_is_its_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(timetable.PARTS, "engine", timetable.Part("none", "no_such_module", 0.1, 1))
    found = part_module.run("engine", tmp_path / "engine.json", {})
    assert found.status is Status.FAIL and "no_such_module" in found.sentence
    assert Outcome.read(tmp_path / "engine.json") == found
