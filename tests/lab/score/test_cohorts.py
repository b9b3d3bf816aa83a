"""Reading what runs and evaluations saved, and the numbers by cohort."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from ragen_lab.score.cohorts import Measure, by, cohorts_of, estimate, variance
from ragen_lab.score.saved import load
from saved_episodes import episode, plan, played, write
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.errors import RecipeError
from ragen_verl.names import HELD_OUT_SUCCESS
from ragen_verl.rollout.record import encode
from ragen_verl.runs.folder import RunFolder


def run(*args: str):
    return CliRunner().invoke(app, list(map(str, args)), env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    """A run that was evaluated at three steps, best at the middle one, with a schedule in training."""
    folder = RunFolder(tmp_path / "run")
    kwargs = {"success_rate": 1.0}
    later = {**kwargs, "size": 5}
    envs = [{"id": "FrozenLake-v0", "groups": 2, "kwargs": kwargs, "schedule": [{"step": 5, "kwargs": {"size": 5}}]}]
    held_out = [{"id": "FrozenLake-v0", "groups": 2, "kwargs": kwargs}]
    block = {"train": {"envs": envs, "seed": 9}, "val": {"envs": held_out, "seed": 123}, "of_later_versions": 1}
    folder.begin(OmegaConf.create({"ragen": block}), 0)
    for step, rate in ((0, 0.0), (5, 1.0), (10, 0.5)):
        folder.log(step, {HELD_OUT_SUCCESS: rate})
        records = [
            played([plan(seed=seed) if rate > i / 2 else []], seed=seed).record for i, seed in enumerate((123, 124))
        ]
        folder.write_trajectories("val", step, records)
    for step, known in ((1, kwargs), (5, later)):
        folder.write_trajectories("train", step, [played([plan(seed=9, **known)], seed=9, **known).record])
    return folder


@pytest.mark.parametrize(("step", "wanted"), [("first", 0), ("last", 10), ("best", 5), ("5", 5)])
def test_the_step_of_a_run_is_named(folder, step, wanted):
    saved = load(folder.path, step=step)
    assert saved.step == wanted and {one.step for one in saved.trajectories} == {wanted}
    assert len(load(folder.path, step="all").trajectories) == 6


def test_a_runs_trajectories_are_played_again_with_its_arguments(folder):
    assert all(one.replay for one in load(folder.path, step="all").trajectories)
    train = load(folder.path, split="train", step="all").trajectories
    assert [one.kwargs.get("size") for one in train] == [None, 5] and all(one.replay.success for one in train)


def test_an_evaluation_is_played_again_with_its_arguments(tmp_path):
    settings = {"arguments": {"val": {"FrozenLake": {"success_rate": 0.3}}}, "shared_group_rng": True}
    write(tmp_path / "me" / "episodes.jsonl", [played([["Up"]] * 3, success_rate=0.3)])
    (tmp_path / "me" / "settings.json").write_text(json.dumps(settings))
    (one,) = load(tmp_path).trajectories
    assert one.shared_rng and one.replay is not None
    (tmp_path / "me" / "settings.json").unlink()
    assert load(tmp_path).trajectories[0].replay is None, "the arguments are not known"


def test_what_is_broken_or_excluded_is_counted_not_scored(tmp_path):
    file = write(tmp_path / "episodes.jsonl", [episode(True, 1), episode(False, 2)])
    failed = {**encode(episode(False, 3).record), "excluded": True}
    file.write_text(file.read_text() + json.dumps(failed) + '\n[1]\n{"a": 1}\n"x"\n{"seed": 1, "turns": [{"tu')
    saved = load(tmp_path)
    assert (len(saved.trajectories), saved.excluded, saved.broken) == (2, 1, 4)


def test_an_episode_that_was_played_again_counts_once(tmp_path):
    failed = episode(False, 1)
    failed.record["excluded"] = True
    write(tmp_path / "episodes.jsonl", [failed, episode(False, 1), episode(True, 1)])
    saved = load(tmp_path)
    (one,) = saved.trajectories
    assert one.success and saved.excluded == 0


def test_damaged_settings_only_keep_episodes_from_a_replay(folder, tmp_path):
    (folder.path / "config.yaml").write_text("{[")
    write(tmp_path / "me" / "episodes.jsonl", [played([plan()])])
    (tmp_path / "me" / "settings.json").write_text('{"cut sh')
    for path in (folder.path, tmp_path / "me"):
        told = run("score", path)
        assert told.exit_code == 0 and "could not be played again" in told.output, told.output


@pytest.mark.parametrize(
    ("made", "arguments", "told"),
    [
        ([], {}, "holds no trajectories: name a run's folder"),
        (["a", "b"], {}, "evaluation of 2 policies: name the folder of one, such as .*a"),
    ],
)
def test_a_folder_with_nothing_to_read_is_refused(tmp_path, made, arguments, told):
    for name in made:
        write(tmp_path / name / "episodes.jsonl", [episode(True, 1)])
    with pytest.raises(RecipeError, match=told):
        load(tmp_path, **arguments)


def test_steps_and_splits_that_were_not_saved_are_refused(folder, tmp_path):
    with pytest.raises(
        RecipeError, match="no trajectories of step '7': name one of 0, 5, 10, or first, last, best, all"
    ):
        load(folder.path, step="7")
    with pytest.raises(RecipeError, match="split 'generalisation'; it has train, val"):
        load(folder.path, split="generalisation")
    write(tmp_path / "episodes.jsonl", [])
    with pytest.raises(RecipeError, match="no trajectory that counts"):
        load(tmp_path / "episodes.jsonl")


# -- numbers ----------------------------------------------------------------------------------------------------------


RETURN = Measure("return", lambda one: one.ret, "higher", False, "")
SUCCESS = Measure("success", lambda one: float(one.success), "higher", True, "")


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-10, 10)), min_size=1, max_size=40))
def test_means_weigh_initial_states_alike(rows):
    found = estimate([episode(True, seed, i, ret) for i, (seed, ret) in enumerate(rows)], RETURN)
    states = {seed: [ret for other, ret in rows if other == seed] for seed, _ in rows}
    assert found.value == pytest.approx(sum(sum(all) / len(all) for all in states.values()) / len(states), abs=1e-9)
    assert found.states == len(states) and (found.low is None) == (len(states) == 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-10, 10)), min_size=1, max_size=20))
def test_the_variance_is_that_inside_initial_states(rows):
    found = variance([episode(True, seed, i, ret) for i, (seed, ret) in enumerate(rows)])
    spreads = []
    for state in {seed for seed, _ in rows}:
        values = [ret for seed, ret in rows if seed == state]
        middle = sum(values) / len(values)
        spreads += [sum((one - middle) ** 2 for one in values) / (len(values) - 1)] if len(values) > 1 else []
    assert found is None if not spreads else found.value == pytest.approx(np.mean(spreads), abs=1e-9)


def test_more_samples_of_the_same_states_narrow_nothing():
    few = [episode(seed % 2 == 0, seed, i) for seed in range(8) for i in range(2)]
    many = [episode(seed % 2 == 0, seed, i) for seed in range(8) for i in range(20)]
    assert (estimate(few, SUCCESS).low, estimate(few, SUCCESS).high) == pytest.approx(
        (estimate(many, SUCCESS).low, estimate(many, SUCCESS).high)
    )


def test_all_alike_is_not_certain():
    found = estimate([episode(True, seed, i) for seed in range(8) for i in range(4)], SUCCESS)
    assert found.value == 1 and found.low < 0.7


def test_cohorts_have_names_and_an_order():
    many = [episode(True, seed, env=env) for env in ("B", "A") for seed in (130, 100, 64)]
    assert list(cohorts_of(many, by(["environment", "seeds"]))) == [
        "A, seeds 64 to 127",
        "A, seeds 128 to 191",
        "B, seeds 64 to 127",
        "B, seeds 128 to 191",
    ]
    assert list(cohorts_of(many, by([]))) == ["all"]
    assert list(cohorts_of(many[:1], by(["state", "split", "step"]))) == ["B seed 130, val, no step"]
    with pytest.raises(RecipeError, match="did you mean environment"):
        by(["enviroment"])


# -- the command ------------------------------------------------------------------------------------------------------


def test_score_prints_and_writes_every_measure(folder, tmp_path):
    told = run("score", folder.path, "--step", "all", "--by", "step", "--out", tmp_path / "scores")
    assert told.exit_code == 0, told.output
    found = json.loads((tmp_path / "scores" / "scores.json").read_text())
    assert list(found["cohorts"]) == ["step 0", "step 5", "step 10"] and found["replayed"] == 6
    assert [one["values"]["goal_progress"]["value"] for one in found["cohorts"].values()] == [0, 1, 0.5]
    page = (tmp_path / "scores" / "scores.md").read_text()
    for name in found["measures"]:
        assert name in told.output and f"- {name}: " in page
    rows = [json.loads(line) for line in (tmp_path / "scores" / "scores.jsonl").read_text().splitlines()]
    assert len(rows) == 6 and rows[0]["scores"].keys() == rows[5]["scores"].keys()
    printed = json.loads(run("score", folder.path, "--step", "all", "--by", "step", "--json").output)
    assert printed == found


def test_score_takes_evaluators_of_a_file(folder, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from ragen_lab.score import evaluator\n\n"
        "@evaluator('number_of_turns', better='lower')\n"
        "def turns(trajectory, *, times: float = 1.0) -> float:\n"
        "    '''Turns of the episode.'''\n"
        "    return times * len(trajectory.turns)\n"
    )
    only = ("--only", "number_of_turns", "--set", "number_of_turns.times=3", "--json")
    told = run("score", folder.path, "--plugin", plugin, *only)
    assert told.exit_code == 0, told.output
    (cohort,) = json.loads(told.output)["cohorts"].values()
    assert cohort["values"]["number_of_turns"]["value"] == 3 and "goal_progress" not in cohort["values"]
    assert run("score", folder.path, "--set", "x").exit_code == 2
    assert run("score", folder.path, "--rubric", plugin).exit_code == 2


def test_score_asks_a_judge_and_remembers(folder):
    from endpoint import endpoint

    with endpoint('{"score": 0.25, "reason": "poor"}') as (url, requests):
        for _ in range(2):
            told = run("score", folder.path, "--judge", f"m@{url}", "--set", "reward_hacking.evaluator=judge", "--json")
            assert told.exit_code == 0, told.output
    (cohort,) = json.loads(told.output)["cohorts"].values()
    assert cohort["values"]["judge"]["value"] == 0.25 and len(requests) == 2
    assert cohort["values"]["reward_hacking"]["value"] == 0.5, "one of two was solved, and the judge says no"
