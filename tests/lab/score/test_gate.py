"""What a gate lets through, and what it does not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ragen_lab.score.cohorts import Measure, by, measures
from ragen_lab.score.gate import DEGRADED, FEW, FINE, IMPROVED, Thresholds, gate
from saved_episodes import episode, plan, played, write
from scipy import stats
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.errors import RecipeError

OWN = measures([])


def scored(rows, env="Lake", first=0, samples=1):
    """Trajectories with these values of `quality`, a state each; returns follow them."""
    found = [episode(value > 0.5, first + i // samples, i % samples, float(value), env) for i, value in enumerate(rows)]
    for one, value in zip(found, rows, strict=True):
        one.scores["quality"] = float(value)
    return found


QUALITY = Measure("quality", lambda one: one.scores["quality"], "higher", False, "")


def outcomes(found):
    return {(one.cohort, one.measure): one.outcome for one in found}


def test_a_paired_interval_holds_for_all_measures_at_once():
    random = np.random.default_rng(0)
    base = random.normal(size=40)
    new = base + random.normal(0.1, 0.3, 40)
    found = gate(scored(new), scored(base), [*OWN, QUALITY], by([]))
    (one,) = [one for one in found if one.measure == "quality"]
    wanted = stats.ttest_rel(new, base).confidence_interval(1 - 0.05 / 3)
    assert (one.paired, one.difference.low, one.difference.high) == (True, *map(pytest.approx, wanted))


def test_other_states_are_two_samples():
    random = np.random.default_rng(1)
    base, new = random.normal(size=40), random.normal(1, 2, size=55)
    found = gate(scored(new, first=1000), scored(base), [*OWN, QUALITY], by([]), Thresholds(measures=("quality",)))
    (one,) = [one for one in found if one.measure == "quality"]
    wanted = stats.ttest_ind(new, base, equal_var=False).confidence_interval(1 - 0.05 / 3)
    assert (one.paired, one.difference.low, one.difference.high) == (False, *map(pytest.approx, wanted))
    assert one.states == 40 and one.difference.states == 95


@pytest.mark.parametrize("shared", [True, False])
def test_runs_that_do_not_differ_fail_as_rarely_as_promised(shared):
    random = np.random.default_rng(2)
    many = [Measure(f"m{i}", lambda one, i=i: one.scores[f"m{i}"], "higher", False, "") for i in range(6)]
    failed, trials = 0, 400
    for _ in range(trials):
        sides = [scored(random.binomial(1, 0.5, 30), first=place) for place in (0, 0 if shared else 1000)]
        for one in (*sides[0], *sides[1]):
            one.scores |= {f"m{i}": float(random.normal()) for i in range(6)}
        failed += any(one.outcome == DEGRADED for one in gate(*sides, [*OWN, *many], by([])))
    assert failed / trials < 0.025 + 3 * (0.025 * 0.975 / trials) ** 0.5, "one of the two tails of 5 %"


def test_more_samples_of_the_same_states_decide_no_sooner():
    base, new = [1] * 12 + [0] * 12, [1] * 9 + [0] * 15
    few = gate(scored(new), scored(base), OWN, by([]))
    many = gate(scored(np.repeat(new, 8), samples=8), scored(np.repeat(base, 8), samples=8), OWN, by([]))
    assert [one.difference for one in few] == [one.difference for one in many]


def test_an_evaluator_beside_the_reward_fails_the_gate():
    good, bad = scored([1.0] * 30), scored([1.0] * 30)
    for one in bad[:20]:
        one.scores["quality"] = 0.0
    cases = ([*good, *scored([1.0] * 30, "Other")], [*bad, *scored([1.0] * 30, "Other")])
    found = gate(cases[1], cases[0], [*OWN, QUALITY], by(["environment"]))
    worse = [one for one in found if one.outcome == DEGRADED]
    assert [(one.cohort, one.measure) for one in worse] == [("Lake", "quality")]
    assert "quality in Lake: 1.000 -> 0.333" in worse[0].sentence()
    back = gate(*cases, [*OWN, QUALITY], by(["environment"]))
    assert outcomes(back)["Lake", "quality"] == IMPROVED and outcomes(back)["Other", "quality"] == FINE


def test_lower_is_better_where_the_measure_says_so():
    waste = Measure("waste", lambda one: one.scores["quality"], "lower", False, "")
    random = np.random.default_rng(3)
    more, less = scored(random.normal(2, 1, 30)), scored(random.normal(0, 1, 30))
    assert outcomes(gate(more, less, [*OWN, waste], by([])))["all", "waste"] == DEGRADED
    assert outcomes(gate(less, more, [*OWN, waste], by([])))["all", "waste"] == IMPROVED


def test_what_is_tolerated_passes():
    base = scored([1] * 40)
    new = scored([1] * 30 + [0] * 10)
    assert outcomes(gate(new, base, OWN, by([])))["all", "success"] == DEGRADED
    allowed = Thresholds(tolerance={"success": 0.1, "return": 0.1})
    assert set(outcomes(gate(new, base, OWN, by([]), allowed)).values()) == {FINE}


def test_neutral_measures_are_not_judged():
    words = Measure("words", lambda one: 1.0, None, False, "")
    assert {one.measure for one in gate(scored([1] * 20), scored([0] * 20), [*OWN, words], by([]))} == {
        "success",
        "return",
    }


def test_a_measure_that_applies_to_few_states_is_said_not_passed():
    rare = Measure("rare", lambda one: 1.0 if one.seed < 5 else None, "higher", True, "")
    found = gate(scored([1] * 30), scored([1] * 30), [*OWN, rare], by([]))
    assert outcomes(found)["all", "rare"] == FEW and "too few states (5)" in found[-1].sentence()
    with pytest.raises(RecipeError, match="rare in all has 5 initial states"):
        gate(scored([1] * 30), scored([1] * 30), [*OWN, rare], by([]), Thresholds(tolerance={"rare": 0.1}))


def lake(seeds, **kwargs):
    return [played([plan(seed=seed, **kwargs)], seed=seed, **kwargs) for seed in seeds]


@pytest.mark.parametrize(
    ("run", "baseline", "cohorts", "thresholds", "told"),
    [
        (scored([1] * 19), scored([1] * 30), (), {}, "success in all has 19 initial states on one side, too few"),
        (scored([1] * 30, "A"), scored([1] * 30), (), {}, "played val/A and the baseline val/Lake"),
        (lake(range(20)), lake(range(20), size=5), (), {}, "has the arguments .* in the run and .*5"),
        (scored([1] * 30), scored([1] * 30, first=64), ("seeds",), {}, "no cohort 'seeds 0 to 63'"),
        (scored([1] * 30), scored([1] * 30), (), {"tolerance": {"sucess": 0.1}}, "did you mean success"),
    ],
)
def test_what_cannot_be_compared_is_refused(run, baseline, cohorts, thresholds, told):
    with pytest.raises(RecipeError, match=told):
        gate(run, baseline, OWN, by(cohorts), Thresholds(**thresholds))


def test_a_seed_that_shows_another_state_is_refused():
    run, baseline = lake(range(20)), lake(range(20))
    for one in baseline:
        one.kwargs = None
    baseline[7].record["turns"][0]["state"] = "of another version"
    with pytest.raises(RecipeError, match="another initial state for the seed 7"):
        gate(run, baseline, OWN, by([]))


# -- the command ------------------------------------------------------------------------------------------------------


def call(*args):
    return CliRunner().invoke(app, ["gate", *map(str, args)], env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def folders(tmp_path):
    """Two evaluations: the second stumbles on its way, with the same success and return."""
    seeds = range(100, 124)
    for name, wall in (("old", []), ("new", [["Nowhere"]])):
        rows = [played([*wall, plan(seed=seed)], seed=seed) for seed in seeds]
        write(tmp_path / name / "episodes.jsonl", rows)
        arguments = {"val": {"FrozenLake": {"success_rate": 1.0}}}
        (tmp_path / name / "settings.json").write_text(json.dumps({"arguments": arguments}))
    return tmp_path


def test_exit_codes_say_degraded_and_not_to_be_told(folders):
    better = call(folders / "old", "--baseline", folders / "new")
    assert better.exit_code == 0 and "Nothing is worse" in better.output, better.output
    worse = call(folders / "new", "--baseline", folders / "old", "--out", folders / "out")
    assert worse.exit_code == 1 and "Degraded: unnecessary_turns in FrozenLake" in worse.output, worse.output
    record = json.loads((folders / "out" / "gate.json").read_text())
    rows = {one["measure"]: one["outcome"] for one in record["compared"]}
    assert record["verdict"] == "degraded" and rows["success"] == rows["return"] == "no worse"
    assert "**degraded**" in (folders / "out" / "gate.md").read_text()
    few = call(folders / "new", "--baseline", folders / "old", "--min-states", "25")
    assert few.exit_code == 2 and "too few to decide" in few.stderr


def test_what_is_left_out_is_said(tmp_path):
    failed = episode(False, 5000)
    failed.record["excluded"] = True
    old = write(tmp_path / "old" / "episodes.jsonl", scored([1] * 20))
    new = write(tmp_path / "new" / "episodes.jsonl", [*scored([1] * 20), failed])
    with new.open("a") as file:
        file.write('{"cut sh')
    told = call(new, "--baseline", old)
    assert "Left out of the run: 1 episodes that environment or engine failed, 1 lines" in told.output, told.output
    assert told.exit_code == 0 and "of the baseline" not in told.output


def test_names_with_brackets_are_printed_as_they_are(tmp_path):
    for name in ("[red]", "new"):
        write(tmp_path / name / "episodes.jsonl", scored([1] * 20, env="[bold]Lake[/]"))
    told = call(tmp_path / "new", "--baseline", tmp_path / "[red]")
    assert told.exit_code == 0 and "[bold]Lake[/]" in told.output and "[red]" in told.output


def test_thresholds_come_from_a_file_and_options(folders):
    file = folders / "limits.yaml"
    file.write_text("measures: [unnecessary_turns]\ntolerance: {unnecessary_turns: 0.9}\n")
    both = (folders / "new", "--baseline", folders / "old", "--thresholds", file)
    assert call(*both).exit_code == 0
    assert call(*both, "--tolerance", "unnecessary_turns=0").exit_code == 1
    for text in (
        "tolerances: {}",
        "min_states: 1",
        "confidence: 2",
        "[",
        "tolerance: {success: much}",
        "tolerance: {success: -1}",
    ):
        file.write_text(text)
        refused = call(*both)
        assert refused.exit_code == 2 and "Traceback" not in refused.output, text
    assert call(*both[:3], "--tolerance", "x").exit_code == 2
