"""Folders of evaluations, names that tell runs apart, runs that only seeds repeat, and the columns of all metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragen_lab.report import opened, render
from ragen_lab.report.metrics import MOST_ROWS, columns, in_order
from ragen_lab.report.opening import short_names, variants
from ragen_lab.report.played import played
from ragen_lab.report.reading import read_run
from ragen_lab.statistics import rate
from small_runs import small_evaluation, small_run

from ragen_verl.errors import RecipeError

parts = st.lists(st.text("ab1_-", min_size=1, max_size=5), min_size=1, max_size=4).map(lambda one: Path("/", *one))


def with_overrides(path: Path, *given: str) -> Path:
    small_run(path, steps=1)
    (path / "hydra").mkdir(exist_ok=True)
    (path / "hydra" / "overrides.yaml").write_text("".join(f"- {one}\n" for one in given))
    return path


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a"], ["a"]),
        (["runs/lake-seed1/x", "runs/lake-seed2/x"], ["seed1", "seed2"]),
        (["runs/ppo/seed1", "runs/grpo/seed1"], ["ppo", "grpo"]),
        (["runs/ppo/seed1", "runs/grpo/seed2"], ["ppo/seed1", "grpo/seed2"]),
        (["runs/a", "runs/a"], ["a", "a (2)"]),
    ],
)
def test_names_are_what_tells_folders_apart(paths: list[str], names: list[str]) -> None:
    assert short_names([Path(one) for one in paths]) == names


@given(st.lists(parts, min_size=1, max_size=5))
def test_names_are_never_empty_and_never_the_same(paths: list[Path]) -> None:
    names = short_names(paths)
    assert all(names) and len(set(names)) == len(paths)


def test_seeds_and_folders_make_no_variant(tmp_path: Path) -> None:
    runs = [with_overrides(tmp_path / f"a{n}", f"ragen.train.seed={n}", "algorithm=ppo") for n in (1, 2)]
    runs.append(with_overrides(tmp_path / "b", "ragen.train.seed=1", "algorithm=grpo"))
    found = variants(opened(runs))
    assert [(one.label, one.runs) for one in found] == [("algorithm=ppo", (0, 1)), ("b", (2,))]


def test_a_page_of_seeds_leaves_equal_rows_out(tmp_path: Path) -> None:
    runs = opened([with_overrides(tmp_path / f"a{n}", f"ragen.train.seed={n}") for n in (1, 2)])
    text = render(runs).decode()
    table = text[text.index("rows are the same") : text.index('id="trajectories"')]
    assert "ragen.train.seed=2" in table and '<th scope="row">recipe</th>' not in table


def test_an_evaluation_is_a_run_for_each_policy(tmp_path: Path) -> None:
    runs = opened([small_evaluation(tmp_path / "eval", states=5)])
    assert [(one.name, one.recipe, one.state()) for one in runs] == [
        ("first", "a/recipe", "evaluation"),
        ("second", "a/recipe", "evaluation"),
    ]
    assert len(runs[1].records("val", 0)) == 5 and runs[1].records("train", 0) == []
    (row,) = played(runs[1])
    assert (row.where, row.episodes, row.states) == ("val/Lake-v0", 5, 5)
    assert row.success == rate([[True], *[[False]] * 4])


def test_an_episode_that_was_played_again_counts_once(tmp_path: Path) -> None:
    file = small_evaluation(tmp_path / "eval") / "second" / "episodes.jsonl"
    first, *others = file.read_text().splitlines()
    file.write_text("\n".join([first, *others, others[0].replace('"success": false', '"success": true'), "{broken"]))
    run = opened([file.parent])[0]
    assert [one["outcome"] for one in run.records("val", 0)] == ["solved", "solved", "failed", "failed"]
    assert "left out" in run.notes[0]


def test_a_folder_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no run's folder"):
        opened([tmp_path])


def test_columns_have_every_metric_and_sums(tmp_path: Path) -> None:
    run = read_run(small_run(tmp_path, steps=6).path)
    found = columns(run)
    assert found["step"] == list(range(7)) and found["tokens"] == [1000 * n for n in range(7)]
    assert found["seconds"] == [12.0 * n for n in range(7)]
    assert set(found["values"]) == {name for row in run.rows for name in row} - {"step", "time"}
    assert found["values"]["actor/entropy"][0] is None
    assert found["values"]["actor/entropy"][3] == pytest.approx(run.rows[3]["actor/entropy"], rel=1e-5)
    assert [at for at, one in enumerate(found["ends"]) if one] == [0, 2, 4, 6]
    names = in_order([run])
    assert names[0].startswith("val-env/") and names.index("echo/shared") < names.index("actor/entropy")


def test_a_long_run_has_fewer_rows_and_every_evaluation(tmp_path: Path) -> None:
    run = read_run(small_run(tmp_path, steps=1).path)
    run.rows = [{"step": n, "a": n, **({"val-env/success": 0.5} if n % 1001 == 0 else {})} for n in range(5000)]
    found = columns(run)
    assert len(found["step"]) <= MOST_ROWS + 6 and set(range(0, 5000, 1001)) | {4999} <= set(found["step"])
