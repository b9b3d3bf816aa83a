"""The verdict names the cause of a failure, and says nothing about a run that goes well."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import numpy as np
import pytest
from figure_curves import FIGURE_5, FIGURE_6, FIGURE_9_STARPO, FIGURE_9_STARPO_S, evaluations, every_step
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from traces import healthy

from ragen_verl.diagnostics import calls as calls  # registers the causes of runs with tools
from ragen_verl.diagnostics.monitor import Monitor, judge
from ragen_verl.diagnostics.registry import CAUSES, NOTE
from ragen_verl.diagnostics.series import Series
from ragen_verl.diagnostics.table import verdict_table
from ragen_verl.diagnostics.verdict import TOO_EARLY

ONSET = 40
SUCCESS, REWARD, STD = "train/success", "rollout/in_group_reward_mean", "rollout/in_group_reward_std"


def broken(seed: int, change: Callable[[dict, float], None], onset: int = ONSET, steps: int = 100) -> list[dict]:
    """A healthy run in which `change(line, t)` sets in at `onset`; t goes from 0 to 1 over 20 steps."""
    lines = healthy(seed, steps, start=0.3, end=0.55, decline=0.4)
    for line in lines[onset - 1 :]:
        change(line, min(1.0, (line["step"] - onset) / 20))
    return lines


def lose(line: dict, t: float) -> None:
    """Performance goes after the indicator has gone."""
    for name in (SUCCESS, REWARD, "val-env/success"):
        if name in line:
            line[name] *= max(0.0, 1 - t)


def scale(name: str, to: float, lost: bool = True) -> Callable[[dict, float], None]:
    def change(line: dict, t: float) -> None:
        if name in line:
            line[name] *= to**t
        if lost:
            lose(line, t)

    return change


def shift(values: dict[str, float], lost: bool = False) -> Callable[[dict, float], None]:
    def change(line: dict, t: float) -> None:
        for name in values.keys() & line.keys():
            line[name] += t * (values[name] - line[name])
        if lost:
            lose(line, t)

    return change


def choose_by_luck(line: dict, t: float) -> None:
    """The filter keeps groups whose returns are high by chance."""
    line["rollout/selected_return_excess"] += 0.3
    lose(line, t)


def fail_in_part(line: dict, t: float) -> None:
    """Some episodes end in an error."""
    line["train/excluded_ratio"] = 0.2 * t


FAILURES = {
    "episodes_failed": fail_in_part,
    "calls_stopped": shift({"train/turns_without_call": 0.9}, lost=True),
    "call_storm": scale("train/calls", 8.0),
    "variance_death": scale(STD, 0.01),
    "entropy_collapse": scale("actor/entropy", 0.05),
    "entropy_explosion": scale("actor/entropy", 8.0),
    "format_collapse": shift({"echo/format_valid": 0.1, "train/valid": 0.1}),
    "template_collapse": shift({"mi/retrieval_accuracy": 0.05}),
    "gradient_spike": scale("actor/grad_norm", 500.0, lost=False),
    "length_collapse": scale("echo/reasoning_words", 0.01),
    "selection_bias": choose_by_luck,
    "train_inference_mismatch": shift({"mismatch/mean": 0.3, "mismatch/share": 0.05}),
    "stale_samples": shift({"rollout/staleness_mean": 7.0}, lost=True),
    "not_finite": shift({"update/not_finite": 2.0}),
}


@pytest.mark.parametrize("cause", FAILURES)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_failure_gets_its_name(cause: str, seed: int) -> None:
    verdict = judge(broken(seed, FAILURES[cause]))
    assert verdict.primary is not None
    assert [finding.cause for finding in verdict.findings if finding.warns] == [cause]
    assert ONSET <= verdict.primary.step <= 90
    assert verdict.status == ("collapsed" if verdict.collapsed else "warning")
    assert verdict.primary.evidence.metric in CAUSES[cause].reads


def test_every_cause_has_its_failure() -> None:
    assert FAILURES.keys() | DEAD.keys() == set(CAUSES)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_template_collapse_shows_in_the_words_without_the_probe(seed: int) -> None:
    lines = broken(seed, shift({"echo/shared": 0.97}, lost=True))
    lines = [{name: value for name, value in line.items() if not name.startswith("mi/")} for line in lines]
    assert [finding.cause for finding in judge(lines).findings] == ["template_collapse"]


# The three shapes are: improvement, a start near 0, a run that has nothing to improve.
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(1, 150),
    levels=st.sampled_from([(0.2, 0.8), (0.3, 0.72), (0.1, 0.99), (0.5, 0.93), (1.0, 1.0), (0.5, 0.5)]),
)
def test_a_healthy_run_gets_no_warning(seed: int, steps: int, levels: tuple[float, float]) -> None:
    verdict = judge(healthy(seed, steps, *levels))
    assert [finding for finding in verdict.findings if finding.warns] == []
    assert verdict.collapsed is None


def test_false_alarms_are_rare_over_many_runs() -> None:
    verdicts = [judge(healthy(seed, 100, 0.15, 0.6)) for seed in range(60)]
    assert sum(verdict.status != "healthy" for verdict in verdicts) <= 1


def test_a_plateau_of_success_without_variance_is_a_note() -> None:
    random = np.random.default_rng(0)
    lines = []
    for step in range(1, 31):  # success 0.30 to 0.72 while the in-group std falls from 0.39 to 0.09
        done = step / 30
        rate = 0.30 + 0.42 * min(1.0, 1.5 * done) + random.normal(0, 0.02)
        std = 0.39 * (0.09 / 0.39) ** min(1.0, 1.3 * done)
        lines.append({"step": step, SUCCESS: rate, REWARD: rate, STD: std, "actor/entropy": 0.5 - 0.2 * done})
    verdict = judge(lines)
    assert (verdict.status, verdict.primary.cause, verdict.warned) == (NOTE, "variance_death", None)
    assert "success plateau" in verdict.primary.evidence.words


def test_a_note_becomes_a_warning_when_performance_goes() -> None:
    lines = healthy(3, 60, 0.3, 0.7)
    for line in lines[25:]:
        line[STD] *= 0.05
    before = judge(lines)
    assert before.primary.cause == "variance_death" and not before.primary.warns
    for line in lines[45:]:
        lose(line, (line["step"] - 45) / 10)
    after = judge(lines)
    assert after.primary.cause == "variance_death" and after.primary.warns
    assert after.primary.step > before.primary.step


def test_entropy_may_decline_while_reward_rises() -> None:
    lines = healthy(5, 120)
    for line in lines:
        line["actor/entropy"] *= 0.1 ** (line["step"] / 120)
    assert judge(lines).status == "healthy"


def test_retrieval_is_held_against_chance() -> None:
    # ever fewer prompts in the matrix: accuracy stays, what it says does not
    lines = [
        {"step": 10 * i, "mi/retrieval_accuracy": 0.5, "mi/retrieval_chance": chance, "mi/conditional_entropy": 1.0}
        for i, chance in enumerate([0.02] * 4 + [0.4] * 4)
    ]
    assert judge(lines).primary.cause == "template_collapse"
    fixed = [{**line, "mi/conditional_entropy": 1.0 if line["step"] < 40 else 0.1} for line in lines]
    assert judge(fixed).primary is None  # fixed thoughts are another failure


def test_no_variance_from_the_start_warns_unless_solved() -> None:
    def run(success: float) -> list[dict]:
        return [{"step": step, STD: 0.0, SUCCESS: success, REWARD: success} for step in range(1, 31)]

    assert judge(run(0.0)).primary.cause == "variance_death"
    assert judge(run(1.0)).status == "healthy"


def test_mismatch_is_seen_without_a_baseline() -> None:
    verdict = judge([{"step": 1, "mismatch/mean": 0.4}, {"step": 11, "mismatch/mean": 0.4}])
    assert (verdict.primary.cause, verdict.primary.step) == ("train_inference_mismatch", 11)


def test_causes_are_ranked_by_their_first_warning() -> None:
    lines = broken(1, FAILURES["gradient_spike"])
    for line in lines[69:]:
        FAILURES["format_collapse"](line, 1.0)
    found = judge(lines).findings
    assert [finding.cause for finding in found] == ["gradient_spike", "format_collapse"]
    assert found[0].step < 70 <= found[1].step


# -- curves of the paper -----------------------------------------------------------------------------------------------

COLLAPSING = {
    "Bandit PPO": {"entropy_collapse", "gradient_spike"},
    "Bandit GRPO": {"variance_death", "entropy_explosion", "gradient_spike"},
    "FrozenLake PPO": {"variance_death", "entropy_collapse", "gradient_spike"},
    "Sokoban PPO": {"variance_death", "gradient_spike"},
    "Sokoban GRPO": {"variance_death", "entropy_explosion"},
}


def noisy(lines: list[dict], seed: int, size: float) -> list[dict]:
    random = np.random.default_rng(seed)
    return [
        {name: value if name == "step" else value * np.exp(random.normal(0, size)) for name, value in line.items()}
        for line in lines
    ]


@pytest.mark.parametrize("run", COLLAPSING)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([0.0, 0.05, 0.1]))
def test_runs_of_figure_6_that_collapsed_get_their_causes(run: str, seed: int, size: float) -> None:
    verdict = judge(noisy(every_step(FIGURE_6[run]), seed, size))
    assert {finding.cause for finding in verdict.findings if finding.warns} >= COLLAPSING[run]
    if run.endswith("PPO"):  # their reward falls from where it was; those of GRPO never had any
        assert verdict.status == "collapsed"


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([0.0, 0.05, 0.15]))
def test_the_stable_run_of_figure_6_gets_none(seed: int, size: float) -> None:
    verdict = judge(noisy(every_step(FIGURE_6["FrozenLake GRPO"]), seed, size))
    assert verdict.status == "healthy"


def test_warnings_come_before_the_papers_gradient_spike() -> None:
    # appendix B.3: spikes at 170 (Bandit), 110 (Sokoban), 90 (FrozenLake)
    for run, spike in {"Bandit PPO": 170, "Sokoban PPO": 110, "FrozenLake PPO": 90}.items():
        assert judge(every_step(FIGURE_6[run])).warned <= spike


@pytest.mark.parametrize("run", FIGURE_5)
def test_held_out_success_of_figure_5_is_lost_or_not(run: str) -> None:
    verdict = judge(evaluations(FIGURE_5[run]))
    assert verdict.status == ("healthy" if run == "FrozenLake GRPO" else "collapsed")


@pytest.mark.parametrize("run", FIGURE_9_STARPO_S)
def test_starpo_s_of_figure_9_holds(run: str) -> None:
    assert judge(evaluations(FIGURE_9_STARPO_S[run], 20)).status == "healthy"


@pytest.mark.parametrize("run", FIGURE_9_STARPO)
def test_starpo_of_figure_9_does_not(run: str) -> None:
    assert judge(evaluations(FIGURE_9_STARPO[run], 20)).status == "collapsed"


# -- state, replay, output ---------------------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), cut=st.integers(1, 99), cause=st.sampled_from(sorted(FAILURES)))
def test_a_resumed_run_has_the_same_verdict(seed: int, cut: int, cause: str) -> None:
    lines = json.loads(json.dumps(broken(seed, FAILURES[cause])))
    monitor = Monitor()
    monitor.replay(lines[:cut])
    for line in lines[cut:]:  # go on
        verdict = monitor.update(line["step"], line)
    assert verdict == judge(lines)
    assert judge(lines[:cut] + lines) == judge(lines)  # steps that were played twice


def test_a_step_cannot_come_twice() -> None:
    monitor = Monitor()
    monitor.update(3, {})
    with pytest.raises(ValueError, match="step 3 comes after step 3"):
        monitor.update(3, {})


def test_what_metrics_jsonl_leaves_out_changes_nothing() -> None:
    lines = healthy(2, 40)
    with_junk = [{**line, "actor/entropy_loss": "text", "train/x": float("nan")} for line in lines]
    for line in with_junk[::7]:
        line["actor/grad_norm"] = float("inf")
    kept = [{name: value for name, value in line.items() if value != float("inf")} for line in with_junk]
    assert judge(with_junk) == judge(kept)


def test_after_a_few_steps_it_is_too_early() -> None:
    assert judge([]).status == TOO_EARLY and judge([]).step == -1
    assert judge(healthy(0, 3)).status == TOO_EARLY
    assert judge(healthy(0, 40)).status == "healthy"


@pytest.mark.parametrize("cause", FAILURES)
def test_output_has_the_verdict(cause: str) -> None:
    verdict = judge(broken(7, FAILURES[cause]))
    record = json.loads(json.dumps(verdict.record(), allow_nan=False))
    assert record["primary"] == cause and record["findings"][0]["advice"]
    assert record["first_warning"] == verdict.warned
    assert {row["metric"] for row in record["indicators"]} >= {SUCCESS, STD, "actor/entropy"}
    metrics = verdict.metrics()
    assert metrics[f"verdict/{cause}"] == 1.0 and metrics["verdict/warnings"] == 1.0
    console = Console(width=200)
    with console.capture() as capture:
        console.print(verdict_table(verdict, indicators=True))
    assert cause in capture.get() and verdict.primary.evidence.metric in capture.get()


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_a_series_knows_its_median_and_best(values: list[float]) -> None:
    series = Series(baseline=4, window=3)
    for value in values:
        series.add(value)
    windows = [float(np.median(values[i : i + 3])) for i in range(len(values) - 2)]
    assert series.recent == (windows[-1] if windows else None)
    assert series.best == (max(windows) if windows else None)
    assert series.baseline == (float(np.median(values[:4])) if len(values) >= 7 else None)
    assert series.error >= 0.9 * series.std  # two medians, of four and of three values


@pytest.mark.parametrize("share", [0.06, 0.22])
def test_an_environment_that_fails_in_part_is_named(share: float) -> None:
    lines = [{"step": step, SUCCESS: 0.3, "train/excluded_ratio": share} for step in (1, 2, 3)]
    lines[0]["train/first_error"] = "ValueError: no such table"
    found = judge(lines)
    assert found.status == "warning" and found.primary and found.primary.cause == "episodes_failed"
    assert found.primary.step == 1 and "no such table" in found.primary.evidence.words
    assert "ragen.stop.failed_episodes" in found.primary.advice
    console = Console(width=400, record=True)
    console.print(verdict_table(found))
    assert "no such table" in console.export_text()


def test_an_episode_that_fails_now_and_then_is_no_finding() -> None:
    lines = [{"step": step, SUCCESS: 0.3, "train/excluded_ratio": 0.1 * (step % 4 == 0)} for step in range(1, 40)]
    assert [one.cause for one in judge(lines).findings] == []


# -- runs that cannot learn -------------------------------------------------------------------------------------------

DEAD = {
    "context_full": {"train/stop/context_full": 1.0, "train/valid": 0.0, STD: 0.0, SUCCESS: 0.0},
    "no_valid_turns": {"train/valid": 0.03},
}


@pytest.mark.parametrize("name", DEAD)
def test_a_run_that_cannot_learn_is_told_in_its_first_step(name):
    first = healthy(0, 1)[0] | {"train/stop/context_full": 0.1, "train/excluded_ratio": 0.0} | DEAD[name]
    verdict = judge([first])
    assert (verdict.status, verdict.primary.cause, verdict.primary.step) == ("warning", name, 1)
    assert "ragen" in verdict.primary.advice
    shown = Console(width=200, record=True, file=io.StringIO())
    shown.print(verdict_table(verdict))
    assert name in shown.export_text() and "too early" not in shown.export_text()


def test_groups_that_never_differ_are_told_at_once():
    lines = [{**line, STD: 0.0, SUCCESS: 0.0} for line in healthy(0, 5)]
    assert [judge(lines[:count]).status for count in range(1, 6)] == ["note"] * 4 + ["warning"]
    assert judge(lines).primary.cause == "variance_death" and judge(lines).primary.advice
    assert judge([{**line, STD: 0.0, SUCCESS: 1.0} for line in lines]).status == TOO_EARLY, "all is solved"
