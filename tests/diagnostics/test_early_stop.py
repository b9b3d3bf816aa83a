"""RAGEN-2's early-stop rules, what a verdict does to checkpoints, their configuration."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from figure_curves import FIGURE_5, FIGURE_6, FIGURE_9_STARPO_S, STD, evaluations, every_step
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_verl.config.diagnostics import Diagnostics, Stop
from ragen_verl.config.schema import parse
from ragen_verl.diagnostics.early_stop import EarlyStop
from ragen_verl.diagnostics.keeping import CheckpointPolicy
from ragen_verl.diagnostics.registry import NOTE, Evidence
from ragen_verl.diagnostics.verdict import Finding, Verdict
from ragen_verl.errors import RecipeError

RAGEN_2 = Stop(reward_variance_collapse=10, low_validation_success=5)
EMPTY = "rollout/empty_after_filter"


def early_stop(lines: Iterable[dict], config: Stop) -> tuple[int, str] | None:
    """The first step at which a rule applies, and its name."""
    rules = EarlyStop(config)
    return next(((line["step"], reason) for line in lines if (reason := rules.update(line))), None)


def std_lines(values: list[float]) -> list[dict]:
    return [{"step": step, STD: value} for step, value in enumerate(values, start=1)]


@settings(deadline=None)
@given(st.lists(st.floats(0, 2), max_size=40), st.integers(1, 12))
def test_variance_collapse_is_ten_per_cent_of_the_first_ten(values: list[float], steps: int) -> None:
    expected = None
    baseline = sum(values[:10]) / 10
    for end in range(10 + steps, len(values) + 1):
        if all(value < 0.1 * baseline for value in values[end - steps : end]):
            expected = (end, "reward_variance_collapse")
            break
    assert early_stop(std_lines(values), Stop(reward_variance_collapse=steps)) == expected


def test_steps_without_a_kept_group_are_no_baseline() -> None:
    lines = [{"step": 0, STD: 100.0, EMPTY: 1.0}, *std_lines([1.0] * 10 + [0.05] * 5)]
    assert early_stop(lines, Stop(reward_variance_collapse=5)) == (15, "reward_variance_collapse")


@pytest.mark.parametrize("run", FIGURE_5)
def test_low_validation_success_on_figure_5(run: str) -> None:
    dead = {"Bandit GRPO", "Sokoban PPO", "FrozenLake PPO"}
    found = early_stop(evaluations(FIGURE_5[run]), RAGEN_2)
    assert (found is not None) == (run in dead)
    if found:
        step, rule = found
        assert rule == "low_validation_success"
        values = FIGURE_5[run]
        assert step == next(10 * i for i in range(4, 21) if all(one < 0.01 for one in values[i - 4 : i + 1]))


@pytest.mark.parametrize("run", FIGURE_9_STARPO_S)
def test_starpo_s_is_not_stopped(run: str) -> None:
    assert early_stop(evaluations(FIGURE_9_STARPO_S[run], 20), RAGEN_2) is None


def test_reward_variance_collapse_on_figure_6() -> None:
    stopped = {run: early_stop(every_step(curves), RAGEN_2) for run, curves in FIGURE_6.items()}
    assert stopped["FrozenLake GRPO"] is None and stopped["Bandit PPO"] is None
    for run in ("FrozenLake PPO", "Sokoban PPO", "Bandit GRPO"):
        assert stopped[run][1] == "reward_variance_collapse"


def test_one_environment_below_the_limit_is_enough_to_stop() -> None:
    line = {"val-env/A/success": 0.5, "val-env/B/success": 0.0, "val-env/A/non-zero/success": 0.0}
    lines = [{"step": step, **line} for step in range(5)]
    assert early_stop(lines, RAGEN_2) == (4, "low_validation_success")
    total = [{"step": step, "val-env/success": 0.0} for step in range(9)]
    assert early_stop(total, RAGEN_2) is None


def test_evaluations_are_counted_not_steps() -> None:
    lines = [{"step": step, STD: 1.0, **({"val-env/A/success": 0.0} if step % 10 == 0 else {})} for step in range(50)]
    assert early_stop(lines, RAGEN_2) == (40, "low_validation_success")


def test_rules_are_off_by_default_and_the_reason_stays() -> None:
    dead = std_lines([1.0] * 10 + [0.0] * 30)
    assert early_stop(dead, Stop()) is None
    rules = EarlyStop(Stop(reward_variance_collapse=5))
    for line in [*dead, *std_lines([1.0] * 5)]:
        rules.update(line)
    assert rules.metrics() == {"early_stopped/reward_variance_collapse": 1.0}
    assert EarlyStop(Stop()).metrics() == {}


def verdict(step: int | None, note: bool = False) -> Verdict:
    if step is None:
        return Verdict(100)
    evidence = Evidence("actor/entropy", 1.0, 0.1, level=NOTE) if note else Evidence("actor/entropy", 1.0, 0.1)
    return Verdict(100, (Finding("entropy_collapse", step, evidence, ""),))


def test_best_last_good_and_newest_stay() -> None:
    action = CheckpointPolicy(Stop()).decide(
        60, verdict(45), {10: 0.2, 20: 0.6, 30: 0.5, 60: 0.1}, [10, 20, 30, 40, 60]
    )
    assert (action.best, action.last_good) == (20, 40)
    assert action.keep == {20, 40, 60}
    assert action.stop is None


@settings(deadline=None)
@given(
    saved=st.sets(st.integers(1, 50)),
    scores=st.dictionaries(st.integers(1, 50), st.floats(0, 1)),
    warned=st.none() | st.integers(1, 50),
    keep_good=st.booleans(),
)
def test_the_policy_keeps_only_what_is_saved(saved: set, scores: dict, warned: int | None, keep_good: bool) -> None:
    action = CheckpointPolicy(Stop(keep_good=keep_good)).decide(50, verdict(warned), scores, saved)
    assert action.keep <= saved
    assert len(action.keep) <= (3 if keep_good else 1)
    assert not saved or max(saved) in action.keep
    if action.best is not None:
        assert all(scores[action.best] >= scores[one] for one in saved & scores.keys())
    if warned is not None and any(one < warned for one in saved):
        assert action.last_good == max(one for one in saved if one < warned)
    else:
        assert action.last_good is None


def test_a_warning_stops_where_asked_and_a_note_never_does() -> None:
    stop, go_on = CheckpointPolicy(Stop(on_warning="stop")), CheckpointPolicy(Stop())
    assert "entropy_collapse since step 45" in stop.decide(60, verdict(45), {}, []).stop
    assert go_on.decide(60, verdict(45), {}, []).stop is None
    assert stop.decide(60, verdict(45, note=True), {}, []).stop is None
    assert stop.decide(60, verdict(None), {}, []).stop is None
    collapsed = Verdict(100, (), (50, Evidence("val-env/success", 0.5, 0.1)))
    assert "a fall of performance since step 50" in stop.decide(60, collapsed, {}, []).stop
    assert "low_validation_success" in go_on.decide(60, verdict(None), {}, [], rule="low_validation_success").stop


@pytest.mark.parametrize(("rest", "last"), [(0, 50), (10, 60), (None, None)])
def test_a_run_ends_some_steps_after_its_collapse(rest: int | None, last: int | None) -> None:
    policy = CheckpointPolicy(Stop(after_collapse=rest))
    collapsed = Verdict(100, (), (50, Evidence("val-env/success", 0.5, 0.1)))
    reasons = [policy.decide(step, collapsed, {}, []).stop for step in range(50, 80)]
    assert next((step for step, reason in enumerate(reasons, start=50) if reason), None) == last
    assert all("collapsed since step 50 (ragen.stop.after_collapse)" in reason for reason in reasons if reason)
    assert policy.decide(99, verdict(45), {}, []).stop is None


def test_configuration_is_typed() -> None:
    assert parse(Stop, {"on_warning": "stop", "low_validation_success": 5}, "ragen.stop").low_validation_success == 5
    mismatch = parse(Diagnostics, {"mismatch": {"bypass_freq": None}}, "ragen.diagnostics").mismatch
    assert mismatch.bypass_freq is None
    for block, data, words in [
        (Stop, {"on_warning": "halt"}, "one of continue, stop"),
        (Stop, {"low_validation_success": 0}, "a number of 1 or more or null"),
        (Diagnostics, {"mismatch": {"threshold": 0.0}}, "ragen.x.mismatch.threshold is 0.0"),
        (Diagnostics, {"windows": 5}, "did you mean window?"),
        (Diagnostics, {"baseline_steps": 2}, "3 or more"),
    ]:
        with pytest.raises(RecipeError, match=words.replace("?", r"\?")):
            parse(block, data, "ragen.x")


@given(st.lists(st.sampled_from([0.0, 0.5, 0.6, 1.0]), max_size=12))
def test_too_many_failed_episodes_in_a_row_end_a_run(shares: list[float]) -> None:
    runs = [at + 3 for at in range(len(shares) - 2) if min(shares[at : at + 3]) > 0.5]
    lines = [{"step": step, "train/excluded_ratio": share} for step, share in enumerate(shares, 1)]
    assert early_stop(lines, Stop()) == ((runs[0], "failed_episodes") if runs else None)
    assert early_stop(lines, Stop(failed_episodes=None)) is None


def test_episodes_that_no_longer_fail_end_no_resumed_run() -> None:
    rules = EarlyStop(Stop())
    found = [rules.update({"step": n, "train/excluded_ratio": share}) for n, share in enumerate([0.75] * 3 + [0.0], 1)]
    assert found == [None, None, "failed_episodes", None]
