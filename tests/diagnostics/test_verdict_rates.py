"""How often the verdict is wrong on synthetic runs; benchmarks/verdict_rates.py does the same with many more."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_runs import FAILURES, HELD_OUT, broken, changes, healthy

from ragen_verl.diagnostics.monitor import MonitorConfig, judge
from ragen_verl.diagnostics.registry import CAUSES


def test_every_cause_has_its_synthetic_failure() -> None:
    assert {name.split(" (")[0] for name in FAILURES} == {*CAUSES, "collapsed"}


def test_healthy_runs_get_no_warning() -> None:
    verdicts = [
        judge(healthy(family, seed, 120, probe=seed % 2 == 0), MonitorConfig(changes=changes(family, 120)))
        for family in HELD_OUT.values()
        for seed in range(4)
    ]
    assert sum(verdict.warned is not None for verdict in verdicts) <= 1


@pytest.mark.parametrize("cause", FAILURES)
def test_failures_are_named(cause: str) -> None:
    families = [family for family in HELD_OUT.values() if family.shape(np.array([0.25]))[0] >= 0.1]
    verdicts = [judge(broken(family, cause, seed)) for family in families for seed in range(2)]
    if cause == "collapsed":
        missed = sum(verdict.collapsed is None for verdict in verdicts)
    else:
        name = cause.split(" (")[0]
        missed = sum(all(one.cause != name or not one.warns for one in verdict.findings) for verdict in verdicts)
    assert missed <= 1


# -- what made it wrong -----------------------------------------------------------------------------------------------


def flat(seed: int, rate: float, episodes: int = 128, evaluations: int = 60) -> list[dict]:
    random = np.random.default_rng(seed)
    return [
        {"step": step, "val-env/success": random.binomial(episodes, rate) / episodes, "val-env/episodes": episodes}
        for step in range(10, 10 * evaluations + 1, 10)
    ]


def test_a_low_flat_success_is_not_called_collapsed() -> None:
    verdicts = [judge(flat(seed, 0.12)) for seed in range(60)]
    assert sum(verdict.collapsed is not None for verdict in verdicts) <= 1
    gone = [judge(flat(seed, 0.2)[:30] + [{**line, "step": line["step"] + 300} for line in flat(seed, 0.01)[:6]])
            for seed in range(20)]  # fmt: skip
    assert all(verdict.collapsed for verdict in gone)


def retrieval(values: list[float], **more: float) -> list[dict]:
    return [
        {
            "step": 5 * i + 1,
            "mi/retrieval_accuracy": value,
            "mi/retrieval_chance": 1 / 64,
            "mi/responses": 64,
            "mi/conditional_entropy": 1.0,
            **more,
        }
        for i, value in enumerate(values)
    ]


def test_scattered_measurements_do_not_hide_template_collapse() -> None:
    verdict = judge(retrieval([0.95, 0.45, 0.9, 0.5, 0.1, 0.05, 0.1]))
    assert verdict.primary.cause == "template_collapse"


def test_few_samples_are_no_evidence_of_template_collapse() -> None:
    few = [{**line, "mi/responses": 4} for line in retrieval([0.75] * 3 + [0.25] * 3)]
    assert judge(few).primary is None


def test_words_show_template_collapse_beside_the_probe() -> None:
    lines = healthy(HELD_OUT["one in seven"], 1, 60, probe=True)
    for line in lines[30:]:
        line["echo/shared"] = 0.95
        line["train/success"] = line["rollout/in_group_reward_mean"] = 0.0
    assert "template_collapse" in {finding.cause for finding in judge(lines).findings}


def test_harder_environments_start_a_new_baseline() -> None:
    random = np.random.default_rng(0)
    rates = np.r_[np.full(60, 0.8), np.full(60, 0.2)]
    lines = [{"step": i + 1, "train/success": random.binomial(128, rate) / 128} for i, rate in enumerate(rates)]
    assert judge(lines).collapsed is not None
    block = {"train": {"envs": [{"schedule": [{"step": 61, "kwargs": {"size": 9}}]}, {"id": "Bandit-v0"}]}}
    assert MonitorConfig.from_recipe(block).changes == (61,)
    assert judge(lines, MonitorConfig.from_recipe(block)).status == "healthy"
    lines[100:] = [{**line, "train/success": 0.0} for line in lines[100:]]
    assert judge(lines, MonitorConfig.from_recipe(block)).collapsed is not None


def test_rare_rewards_get_the_advice_that_helps() -> None:
    advice = next(
        finding.advice
        for finding in judge(broken(HELD_OUT["rise and rest"], "variance_death", 3)).findings
        if finding.cause == "variance_death"
    )
    assert "norm_adv_by_std_in_grpo: false" in advice


def test_kept_groups_that_return_more_are_a_note() -> None:
    lines = healthy(HELD_OUT["rise and rest"], 0, 80, probe=False)
    for line in lines:
        line["rollout/selected_return_excess"] += 0.2
    verdict = judge(lines)
    assert (verdict.status, verdict.primary.cause, verdict.primary.advice) == ("note", "selection_bias", "")


def test_a_run_that_recovered_is_told_to_change_nothing() -> None:
    lines = [
        {
            "step": step,
            "train/success": 0.5 if step <= 60 else 0.97,
            "actor/entropy": 0.1 if 30 < step <= 60 else 1.0,
        }
        for step in range(1, 121)
    ]
    assert judge(lines[:60]).primary.advice
    verdict = judge(lines)
    assert (verdict.status, verdict.primary.cause, verdict.primary.advice) == ("warning", "entropy_collapse", "")
