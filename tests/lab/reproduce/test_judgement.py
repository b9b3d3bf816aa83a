"""From run folders to a verdict: which runs count, what is kept of them, and what is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_runs import SEEDS, all_finished, compose, finish, read
from ragen_lab.reproduce import results
from ragen_lab.reproduce.catalogue import experiments
from ragen_lab.reproduce.decisions import Decision
from ragen_lab.reproduce.estimates import paired_difference
from ragen_lab.reproduce.experiment_protocol import Event, Statistic
from ragen_lab.reproduce.figures import figure
from ragen_lab.reproduce.judgement import judge_result
from ragen_lab.reproduce.measure import event_step, from_curve, label, unpacked
from ragen_lab.reproduce.outcomes import evaluation
from ragen_lab.reproduce.page import comparison_rows, level_rows, page
from ragen_lab.reproduce.sensitivity import sensitivity
from ragen_lab.reproduce.settings import packed
from ragen_lab.reproduce.settings import unpacked as unpacked_settings
from ragen_lab.reproduce.sweep import Sweep

from ragen_verl.errors import RecipeError
from ragen_verl.runs.folder import RunFolder

METRIC = "mean of the last 3 values of val-env/success"
RATES = {"a": 0.7, "b": 0.3, "c": 0.3}


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return read(tmp_path)


@pytest.fixture
def root(sweep: Sweep, tmp_path: Path) -> Path:
    all_finished(sweep, tmp_path / "runs", RATES)
    return tmp_path / "runs"


def folder(root: Path, variant: str, seed: int) -> RunFolder:
    return RunFolder(root / "small" / variant / f"seed{seed}")


def left_out(sweep: Sweep, root: Path) -> dict[tuple[str, int], tuple[str, str]]:
    found = results.collect(sweep, root, compose)["left_out"]
    return {(one["variant"], one["seed"]): (one["state"], one["why"]) for one in found}


def test_a_true_difference_is_confirmed_and_none_is_not(sweep: Sweep, root: Path) -> None:
    found = judge_result(sweep, results.collect(sweep, root, compose))
    assert [one.decision for one in found.comparisons] == [Decision.CONFIRMED, Decision.UNDECIDED, Decision.UNDECIDED]
    assert found.decision is Decision.CONFIRMED
    assert found.sentence == "small: CONFIRMED; of the directions that decide 1 confirmed."
    first = found.comparisons[0]
    assert first.effect.low > 0.2 and first.improvement.value == 1.0 and first.p_value <= 0.01


def test_the_opposite_direction_is_a_contradiction(sweep: Sweep, root: Path) -> None:
    claims = sweep.protocol.comparisons
    protocol = replace(sweep.protocol, comparisons=(replace(claims[0], expected="lower"), *claims[1:]))
    found = judge_result(sweep, results.collect(sweep, root, compose))
    other = judge_result(replace(sweep, protocol=protocol), results.collect(sweep, root, compose))
    assert (found.decision, other.decision) == (Decision.CONFIRMED, Decision.CONTRADICTED)
    assert "1 contradicted" in other.sentence


def test_a_look_takes_its_first_seeds_at_its_level(sweep: Sweep, tmp_path: Path) -> None:
    more = replace(sweep, seeds=(*SEEDS, 5_010_000, 6_010_000))
    all_finished(more, tmp_path / "runs", {**RATES, "a": 0.45})
    found = results.collect(more, tmp_path / "runs")
    protocol = more.protocol
    five, seven = (
        judge_result(
            replace(more, seeds=more.seeds[:n], protocol=replace(protocol, least_seeds=n)), _first(found, more, n)
        )
        for n in (5, 7)
    )
    p_value = five.comparisons[0].p_value
    assert 0 < seven.comparisons[0].p_value < p_value < 0.02
    for share, expected in ((1.01, five), (0.99, seven)):
        looks = {5: share * p_value, 7: 0.03}
        judged = judge_result(replace(more, protocol=replace(more.protocol, looks=looks)), found)
        assert judged.comparisons[0].p_value == expected.comparisons[0].p_value
        assert (judged.decision, judged.runs["a"]) == (Decision.CONFIRMED, expected.runs["a"])


def test_a_look_that_decides_nothing_waits_for_the_next(sweep: Sweep, root: Path) -> None:
    protocol = replace(sweep.protocol, looks={5: 1e-9, 7: 0.03})
    more = replace(sweep, seeds=(*SEEDS, 5_010_000, 6_010_000), protocol=protocol)
    found = judge_result(more, results.collect(more, root))
    assert found.decision is Decision.UNDECIDED
    assert found.sentence.endswith("missing are 2 seeds of a, 2 seeds of b.")


def _first(result: dict, sweep: Sweep, count: int) -> dict:
    return {**result, "runs": [run for run in result["runs"] if run["seed"] in sweep.seeds[:count]]}


def test_the_difference_is_that_of_every_state(sweep: Sweep, root: Path) -> None:
    table = []
    for seed in SEEDS:
        sides = [
            [evaluation(folder(root, v, seed), step, "val-env/success").means for step in (10, 20, 30)] for v in "ab"
        ]
        table.append(np.mean(sides[0], axis=0) - np.mean(sides[1], axis=0))
    found = judge_result(sweep, results.collect(sweep, root)).comparisons[0].effect
    assert found.value == pytest.approx(np.mean(table))
    assert found.low == pytest.approx(paired_difference(np.array(table)).interval.low)


def test_results_hold_the_outcome_on_every_state(sweep: Sweep, root: Path, tmp_path: Path) -> None:
    results.write(results.collect(sweep, root), tmp_path / "out")
    run = results.read("small", tmp_path / "out")["runs"][0]
    held = evaluation(folder(root, run["variant"], run["seed"]), 30, "val-env/success")
    assert list(unpacked(run["values"][METRIC][-1]).items()) == list(zip(held.states, held.means.tolist(), strict=True))
    assert run["values"][METRIC][-1]["samples"] == 2 and len(run["values"][METRIC][-1]["sums"]) == 24


def test_too_few_seeds_decide_nothing_and_are_counted(sweep: Sweep, root: Path) -> None:
    for seed in SEEDS[:2]:
        folder(root, "b", seed).path.rename(root / f"away{seed}")
    found = judge_result(sweep, results.collect(sweep, root, compose))
    assert found.decision is Decision.UNDECIDED and "missing are 2 seeds of a, 2 seeds of b" in found.sentence
    assert found.comparisons[0].p_value is None and "(2 seeds missing)" in comparison_rows(found)[0][-1]
    assert judge_result(sweep, results.collect(sweep, root / "none", compose)).decision is Decision.NOT_RUN


def test_a_run_of_other_settings_does_not_count(sweep: Sweep, root: Path) -> None:
    one = folder(root, "a", SEEDS[0])
    one.path.rename(root / "away")
    finish(one, "a", SEEDS[0], 0.7, filter="top_k")
    assert left_out(sweep, root) == {
        ("a", SEEDS[0]): ("of other settings", "ragen.filter: 'top_k' -> (none)"),
    }


def test_a_key_that_came_later_at_its_default_is_no_difference(sweep: Sweep, root: Path) -> None:
    def with_new(recipe: str, overrides: list[str]) -> dict:
        return {**compose(recipe, overrides), "new": {"key": False}}

    def set_since(recipe: str, overrides: list[str]) -> dict:
        return {**compose(recipe, overrides), "new": {"key": bool(overrides)}}

    assert not results.collect(sweep, root, with_new)["left_out"]
    assert len(results.collect(sweep, root, set_since)["left_out"]) == 15


@pytest.fixture
def earlier(sweep: Sweep, root: Path, tmp_path: Path) -> dict:
    return results.read("small", results.write(results.collect(sweep, root, compose), tmp_path / "out").parent)


def test_runs_of_an_earlier_result_count(sweep: Sweep, root: Path, earlier: dict) -> None:
    whole = results.collect(sweep, root, compose)
    folder(root, "b", SEEDS[1]).path.rename(root / "away")
    for place in (root, root / "none"):
        found = results.collect(sweep, place, compose, earlier=earlier)
        assert found == json.loads(json.dumps(whole))
        assert judge_result(sweep, found) == judge_result(sweep, whole)


def test_a_folder_comes_before_an_earlier_result(sweep: Sweep, root: Path, earlier: dict) -> None:
    one = folder(root, "a", SEEDS[0])
    one.path.rename(root / "away")
    finish(one, "a", SEEDS[0], 0.1)
    changed = results.collect(sweep, root, compose, earlier=earlier)["runs"]
    assert [run for run in changed if run not in earlier["runs"]] == [results.collect(sweep, root)["runs"][0]]
    one.summary.unlink()
    (left,) = results.collect(sweep, root, compose, earlier=earlier)["left_out"]
    assert (left["variant"], left["seed"], left["state"]) == ("a", SEEDS[0], "unfinished")


def test_an_earlier_result_of_other_settings_does_not_count(sweep: Sweep, root: Path, earlier: dict) -> None:
    def faster(recipe: str, overrides: list[str]) -> dict:
        made = compose(recipe, overrides)
        return {**made, "lr": 2e-3} if made["ragen"]["variant"] == "b" else {**made, "new": {"key": 1}}

    found = results.collect(sweep, root / "none", faster, earlier=earlier)
    assert {run["variant"] for run in found["runs"]} == {"a", "c"}
    assert {(one["variant"], one["state"], one["why"]) for one in found["left_out"]} == {
        ("b", "of other settings", "lr: 0.001 -> 0.002")
    }
    assert {*found["settings"]} == {"all", "a", "c"}


def test_an_earlier_result_without_a_statistic_does_not_count(sweep: Sweep, root: Path, earlier: dict) -> None:
    now = replace(sweep, panels={**sweep.panels, "length": "rollout/length"})
    found = results.collect(now, root / "none", compose, earlier=earlier)
    assert not found["runs"] and {one["why"] for one in found["left_out"]} == {"The earlier result has no length."}


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.dictionaries(st.sampled_from(["x", "y", "z"]), st.integers(0, 2) | st.none()),
    )
)
def test_packed_settings_are_the_settings(variants: dict) -> None:
    assert unpacked_settings(json.loads(json.dumps(packed(variants)))) == variants


def test_files_that_were_cut_short_are_found(sweep: Sweep, root: Path) -> None:
    summary, log, played = (folder(root, "a", seed) for seed in SEEDS[:3])
    summary.summary.write_text(summary.summary.read_text()[:20])
    log.metrics.write_text(log.metrics.read_text()[:-300])
    file = played.trajectories("val") / "000030.jsonl"
    file.write_text(file.read_text()[:-40])
    unfinished = folder(root, "a", SEEDS[3])
    unfinished.summary.unlink()
    found = left_out(sweep, root)
    assert [found["a", seed][0] for seed in SEEDS[:4]] == ["damaged", "damaged", "damaged", "unfinished"]
    assert found["a", SEEDS[1]][1] == "metrics.jsonl ends at step 29 of 30"
    assert results.set_aside(played).name == f"seed{SEEDS[2]}.damaged1" and not played.path.exists()


def test_a_result_that_was_cut_short_is_refused(sweep: Sweep, root: Path, tmp_path: Path) -> None:
    file = results.write(results.collect(sweep, root), tmp_path / "out")
    text = file.read_text()
    file.write_text(text[: len(text) // 2])
    with pytest.raises(RecipeError, match="--report-only"):
        results.read("small", tmp_path / "out")


def test_a_missing_metric_is_said_and_not_repeated(sweep: Sweep, root: Path) -> None:
    statistic = replace(sweep.protocol.statistic, metric="val-env/Other/success")
    other = replace(sweep, protocol=replace(sweep.protocol, statistic=statistic))
    assert {state for state, _ in left_out(other, root).values()} == {"without a metric"}


def test_published_bests_are_compared_with_bests_and_their_bias(sweep: Sweep, root: Path) -> None:
    found = judge_result(sweep, results.collect(sweep, root))
    (one,) = found.levels
    best = [max(row["val-env/success"] for row in folder(root, "a", seed).rows() if "val-env/success" in row)
            for seed in SEEDS]  # fmt: skip
    assert one.ours.value == pytest.approx(np.mean(best)) and one.is_best and 0 < one.bias < 0.1
    assert "(best)" in level_rows(found.levels)[0][2]


def test_events_are_the_first_of_values_in_a_row() -> None:
    rows = [{"step": step, "m": value} for step, value in enumerate([1.0, 2.0, 0.4, 1.5, 0.4, 0.3, 0.2])]
    assert event_step(rows, Event("m", below=0.5)) == 2
    assert event_step(rows, Event("m", below=0.5, hold=2)) == 4
    assert event_step(rows, Event("m", below=0.25, of="best")) == 2
    assert event_step(rows, Event("m", above=1.8, of="first")) == 1
    assert event_step(rows, Event("m", above=9.0)) is None


def test_page_and_picture_are_made_of_results_alone(sweep: Sweep, root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    other = replace(sweep, name="other")
    empty = page([sweep, other], out)
    assert "| small | it is | a table | 15 runs" in empty and "confirmed**" not in empty
    result = results.collect(sweep, root)
    results.write(result, out)
    text = page([other, sweep], out)
    assert text.index("[small](#small)") < text.index("| other |") and "**small: CONFIRMED" in text
    told = replace(sweep, protocol=replace(sweep.protocol, finding="a is above b by {0}."))
    effect = judge_result(told, result).comparisons[0].effect
    assert f"a is above b by {effect.value:+.2g} [" in page([told], out)
    assert json.loads((out / "small.json").read_text())["item"] == "small"
    assert figure(sweep, result, out / "small.png").read_bytes().startswith(b"\x89PNG")
    assert "small.png" in page([sweep], out)


def test_runs_with_equal_outcomes_tie(sweep: Sweep, root: Path) -> None:
    result = results.collect(sweep, root)
    for run in result["runs"]:
        if run["variant"] == "c":
            other = next(one for one in result["runs"] if (one["variant"], one["seed"]) == ("b", run["seed"]))
            swapped = [{**one, "sums": one["sums"][::-1]} for one in other["values"][METRIC]]
            run["values"] = {**run["values"], METRIC: swapped}
    found = judge_result(sweep, result).comparisons[1]
    assert found.improvement.value == 0.5 and found.effect.value == pytest.approx(0.0)


def test_brackets_are_not_corrected_nor_correct_others(sweep: Sweep, root: Path) -> None:
    runs = results.collect(sweep, root, compose)
    found = judge_result(sweep, runs).comparisons
    all_decide = [replace(one, decides=True) for one in sweep.protocol.comparisons]
    together = judge_result(replace(sweep, protocol=replace(sweep.protocol, comparisons=tuple(all_decide))), runs)
    alone = [
        judge_result(replace(sweep, protocol=replace(sweep.protocol, comparisons=(one,))), runs).comparisons[0]
        for one in all_decide
    ]
    assert [one.p_value for one in found] == [one.p_value for one in alone]
    assert together.comparisons[0].p_value > found[0].p_value


def test_a_pilot_has_no_verdict(sweep: Sweep, root: Path) -> None:
    pilot = replace(sweep, protocol=replace(sweep.protocol, pilot=True))
    found = judge_result(pilot, results.collect(pilot, root, compose))
    assert found.decision is Decision.PILOT and "no verdict" in found.sentence
    assert {one.decision for one in found.comparisons} == {Decision.PILOT}


def test_the_chance_of_the_seeds_left_is_said(sweep: Sweep, root: Path) -> None:
    more = replace(sweep, seeds=(*SEEDS, 5_010_000, 6_010_000, 7_010_000))
    equal, different = (
        judge_result(
            replace(more, protocol=replace(sweep.protocol, comparisons=(one,))), results.collect(more, root, compose)
        ).comparisons[0]
        for one in (replace(sweep.protocol.comparisons[1], decides=True), sweep.protocol.comparisons[0])
    )
    assert different.decision is Decision.CONFIRMED and different.chance_left is None
    assert equal.decision is Decision.UNDECIDED and 0 <= equal.chance_left < 0.5


def test_a_protocol_that_changed_silently_is_refused(sweep: Sweep, root: Path) -> None:
    before = results.collect(sweep, root, compose)
    other = replace(sweep, protocol=replace(sweep.protocol, rule="another"))
    with pytest.raises(RecipeError, match=r"protocol\.rule of small is not what it was"):
        results.collect(other, root, compose, earlier=before)
    said = replace(other, protocol=replace(other.protocol, changed=("the rule, as the first could not decide",)))
    assert results.collect(said, root, compose, earlier=before)["protocol"]["rule"] == "another"
    words = replace(sweep, protocol=replace(sweep.protocol, finding="words", claim="more words"))
    assert results.collect(words, root, compose, earlier=before)["runs"]


def test_whole_curves_say_statistics_that_a_result_lacks(sweep: Sweep, root: Path) -> None:
    run = results.collect(sweep, root, compose)["runs"][0]
    assert [step for step, _ in run["curves"]["entropy"]] == list(range(31))
    last = Statistic(metric="val-env/success", last=2)
    values = [value for _, value in run["curves"]["success"]]
    assert from_curve(run, last, sweep.panels) == pytest.approx(np.mean(values[-2:]), abs=1e-6)
    thinned = {**run, "curves": {"entropy": [[2 * step, 0.05] for step in range(30)]}, "steps": 60}
    collapse = Statistic(kind="collapse", event=Event("actor/entropy", below=0.1, hold=3))
    assert from_curve(thinned, collapse, sweep.panels) is None
    whole = {**run, "curves": {"entropy": [[step, 0.05 if step > 7 else 1.0] for step in range(31)]}}
    assert from_curve(whole, collapse, sweep.panels) == {"step": 8, "collapsed": True}


def test_runs_of_another_result_are_taken(sweep: Sweep, root: Path, tmp_path: Path) -> None:
    out = Path(results.__file__).resolve().parents[2] / "benchmarks" / "results" / "reproduction"
    asked = experiments()["e14_where_ppo_learns"]
    taken = [run for run in results.earlier_result(asked, out)["runs"] if run["variant"] == "ppo"]
    theirs = [run for run in results.read("e12_gradient_buckets", out)["runs"] if run["variant"] == "ppo"]
    assert [run["seed"] for run in taken] == [run["seed"] for run in theirs]
    name = label(asked.protocol.statistic)
    assert [run["values"][name] for run in taken] == [run["curves"]["held-out success"][-1][1] for run in theirs]


def test_a_decided_finding_stands_beside_other_definitions(sweep: Sweep, root: Path) -> None:
    found = sensitivity(sweep, results.collect(sweep, root, compose))
    assert {one.comparison for one in found} == {"a against b"}
    exact = next(one for one in found if "flips" in one.definition)
    assert exact.p_value == 2 / 2 ** len(SEEDS)
