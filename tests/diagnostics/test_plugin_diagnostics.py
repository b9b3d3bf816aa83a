"""Indicators and causes that are added from outside."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from ragen_verl.diagnostics import Evidence, Trace, cause, indicator
from ragen_verl.diagnostics.echo_trap import StepIndicators
from ragen_verl.diagnostics.monitor import Monitor, MonitorConfig, judge
from ragen_verl.diagnostics.registry import CAUSES, INDICATORS
from ragen_verl.diagnostics.table import verdict_table
from ragen_verl.errors import RecipeError


@pytest.fixture(autouse=True)
def own_registries(monkeypatch):
    """Whatever a test registers is gone after it."""
    for registry in (CAUSES, INDICATORS):
        monkeypatch.setattr(registry, "_things", dict(registry.items()))


def add_hedging() -> None:
    @indicator("hedging", metrics={"hedging/[maybe]": "turns that say maybe"})
    def count(records, *, word: str = "maybe") -> dict[str, float]:
        return {"hedging/[maybe]": float(sum(word in turn["response"] for one in records for turn in one["turns"]))}

    @cause("hedging", reads=("hedging/[maybe]",), advice="Ask for [bold] words.")
    def grows(trace: Trace, *, factor: float = 2.0) -> Evidence | None:
        one = trace["hedging/[maybe]"]
        return Evidence("hedging/[maybe]", one.baseline, one.recent) if one.above(factor) else None


def lines(last: float) -> list[dict]:
    return [{"step": step, "hedging/[maybe]": 1.0 if step < 20 else last} for step in range(1, 41)]


def test_an_added_cause_shows_like_a_built_in_one():
    add_hedging()
    verdict = judge(lines(5.0))
    assert (verdict.status, verdict.primary.cause, verdict.primary.step) == ("warning", "hedging", 22)
    assert verdict.metrics()["verdict/hedging"] == 1.0 and verdict.metrics()["verdict/entropy_collapse"] == 0.0
    record = json.loads(json.dumps(verdict.record()))
    assert record["findings"][0]["advice"] == "Ask for [bold] words."
    assert [row["metric"] for row in record["indicators"]] == ["hedging/[maybe]"]
    console = Console(width=200, markup=False)
    with console.capture() as capture:
        console.print(verdict_table(verdict, indicators=True))
    for words in ("hedging/[maybe] 1 -> 5", "Ask for [bold] words.", "turns that say maybe"):
        assert words in capture.get()


def test_options_come_from_the_recipe_and_are_checked():
    add_hedging()
    assert judge(lines(5.0), MonitorConfig(causes={"hedging": {"factor": 6}})).primary is None
    turn = {"response": "no", "reasoning": "", "format_ok": True}
    records = [{"excluded": False, "env_id": "A", "seed": 0, "turns": [turn]}]
    assert StepIndicators({"hedging": {"word": "no"}, "echo_trap": None})(records)["hedging/[maybe]"] == 1.0
    for options, words in [
        ({"hedgin": {}}, "did you mean hedging"),
        ({"hedging": {"factr": 1.0}}, "ragen.diagnostics.causes.hedging.factr"),
        ({"hedging": {"factor": "much"}}, "has to be a number"),
    ]:
        with pytest.raises(RecipeError, match=words):
            Monitor(MonitorConfig(causes=options))
    with pytest.raises(RecipeError, match="a whole number of 1 or more"):
        StepIndicators({"echo_trap": {"ngram": 0}})


def test_one_that_raises_is_reported_and_ends_nothing(capsys):
    @cause("broken", reads=(), advice="")
    def broken(trace):
        raise ZeroDivisionError("no")

    @indicator("broken", metrics={})
    def also(records):
        raise KeyError("turns")

    assert judge(lines(1.0)).primary is None
    indicators = StepIndicators()
    assert indicators([]) == {} == indicators([])
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "ragen_verl: the cause broken is off, ZeroDivisionError: no",
        "ragen_verl: indicator broken is off, KeyError: 'turns'",
    ]
