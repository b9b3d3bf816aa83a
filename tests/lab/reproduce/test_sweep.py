"""A sweep's file, its runs in order, and what is made of the runs that are there."""

import io
import json
from pathlib import Path

import pytest
from paths import ROOT
from ragen_lab.reproduce import sweep as sweeps
from ragen_lab.reproduce.sweep import Sweep
from rich.console import Console
from traces import healthy
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.errors import RecipeError
from ragen_verl.runs.folder import RunFolder

SWEEP = """
name: two
recipe: nano/frozen_lake
overrides: [trainer.total_training_steps=2]
seeds: [1, 2]
variants: {a: [], b: [algorithm=starpo_s]}
panels: {held-out success: val-env/success, entropy: actor/entropy}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(SWEEP)
    return path


def finish(folder: RunFolder, seed: int, steps: int = 40) -> None:
    """A run folder as a training leaves it."""
    folder.path.mkdir(parents=True)
    folder.log(0, {"val-env/success": 0.25, "val-env/return": 0.25, "val-env/valid": 1.0})
    for line in healthy(seed, steps):
        extra = {"val-env/return": 0.5, "val-env/valid": 1.0} if "val-env/success" in line else {}
        folder.log(line["step"], {**line, **extra, "timing_s/step": 2.0})
    folder.finish(recipe="r", seed=seed)


@pytest.mark.parametrize(
    "path",
    [*sorted((ROOT / "benchmarks" / "sweeps").glob("*.yaml")), *sweeps.packaged().values()],
    ids=lambda path: path.stem,
)
def test_the_sweeps_of_the_repository_can_be_read(path: Path) -> None:
    sweep = Sweep.read(path)
    assert sweep.name == path.stem
    assert len(list(sweep.runs(Path("runs")))) == len(sweep.seeds) * len(sweep.variants)
    assert sweep.source or not sweep.published


@pytest.mark.parametrize(("name", "path"), sweeps.packaged().items())
def test_a_sweep_of_the_package_is_found_by_its_name(name: str, path: Path) -> None:
    assert Sweep.read(Path(name)) == Sweep.read(path)
    assert path.read_text().startswith(f"# ragen-verl sweep {name}\n")
    assert Sweep.read(path).protocol


def test_a_list_among_the_overrides_stands_for_its_elements(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(SWEEP.replace("{a: [], b: [algorithm=starpo_s]}", "{a: [x=1, &more [y=2, z=3]], b: [*more, w=4]}"))
    sweep = Sweep.read(path)
    runs = {variant: sweep.overrides_of(variant, seed, folder) for variant, seed, folder in sweep.runs(tmp_path)}
    common = ["trainer.total_training_steps=2"]
    assert runs["a"][:4] == [*common, "x=1", "y=2", "z=3"] and runs["b"][:4] == [*common, "y=2", "z=3", "w=4"]


def test_a_variant_can_take_the_runs_of_another_sweep(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(SWEEP + "runs_of: {a: one/first}\n")
    sweep = Sweep.read(path)
    folders = {variant: folder for variant, seed, folder in sweep.runs(tmp_path) if seed == 2}
    assert folders["a"].path == tmp_path / "one" / "first" / "seed2"
    assert folders["b"].path == tmp_path / "two" / "b" / "seed2"
    assert "trainer.experiment_name=one-first" in sweep.overrides_of("a", 2, folders["a"])
    path.write_text(SWEEP + "runs_of: {c: one/first}\n")
    with pytest.raises(RecipeError, match=r"runs_of\.c of the sweep two names a variant that it does not have"):
        Sweep.read(path)


def test_an_unknown_sweep_is_answered_with_the_nearest() -> None:
    with pytest.raises(RecipeError, match=r"did you mean tables/ragen_figure9\?"):
        Sweep.read(Path("tables/ragen_figure99"))


def test_published_numbers_belong_to_a_variant_and_a_panel(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    for published in ("{c: {entropy: 1.0}}", "{a: {other: 1.0}}"):
        path.write_text(SWEEP + f"source: here\npublished: {published}\n")
        with pytest.raises(RecipeError, match="variant or a panel that it does not have"):
            Sweep.read(path)


def test_the_best_of_each_run_stands_beside_what_was_published(file: Path, tmp_path: Path) -> None:
    file.write_text(SWEEP + "source: figure 1\npublished: {a: {held-out success: 0.9}, b: {entropy: 1.5}}\n")
    sweep = Sweep.read(file)
    for _, seed, folder in sweep.runs(tmp_path, only=["a"]):
        finish(folder, seed)
    best = [max(row["val-env/success"] for row in folder.rows() if "val-env/success" in row)
            for _, _, folder in sweep.runs(tmp_path, only=["a"])]  # fmt: skip
    out = Console(file=io.StringIO(), width=120)
    out.print(sweeps.comparison(sweep, sweeps.results(sweep, tmp_path)))
    rows = [line.split() for line in out.file.getvalue().splitlines()]
    assert ["a", "held-out", "success", "2", *sweeps.mean_and_deviation(best).split(), "0.900"] in rows
    assert ["b", "entropy", "0", "-", "1.500"] in rows


@pytest.mark.parametrize(("steps", "told"), [(3, "too early"), (40, "healthy")])
def test_a_verdict_is_told_as_everywhere_else(file: Path, tmp_path: Path, steps: int, told: str) -> None:
    sweep = Sweep.read(file)
    for _, seed, folder in sweep.runs(tmp_path, only=["a"]):
        finish(folder, seed, steps)
    found = sweeps.results(sweep, tmp_path)
    assert {one["verdict"]["status"] for one in found["runs"]} == {told}
    out = Console(file=io.StringIO(), width=160)
    out.print(sweeps.table(sweep, found))
    assert f"{told}; {told}" in out.file.getvalue()


def test_a_collapse_without_a_cause_is_told(file: Path, tmp_path: Path) -> None:
    sweep = Sweep.read(file)
    for _, seed, folder in sweep.runs(tmp_path, only=["a"], seeds=[1]):
        finish(folder, seed)
    found = sweeps.results(sweep, tmp_path)
    found["runs"][0]["verdict"] |= {"status": "collapsed", "collapsed": {"step": 12}, "findings": []}
    out = Console(file=io.StringIO(), width=160)
    out.print(sweeps.table(sweep, found))
    assert "collapsed at 12" in out.file.getvalue() and "healthy" not in out.file.getvalue()


def test_a_dry_run_prints_the_commands_of_what_is_missing(file: Path, tmp_path: Path) -> None:
    finish(next(folder for _, _, folder in Sweep.read(file).runs(tmp_path, only=["b"])), 1)
    done = CliRunner().invoke(app, ["sweep", str(file), "--runs", str(tmp_path), "--dry-run", "--only", "b"])
    (line,) = done.output.splitlines()
    assert line.startswith("ragen-verl train nano/frozen_lake trainer.total_training_steps=2 algorithm=starpo_s ")
    assert f"ragen.run.dir={tmp_path}/two/b/seed2" in line and "ragen.train.seed=2" in line


def test_a_variant_that_there_is_not_is_refused(file: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["sweep", str(file), "--runs", str(tmp_path), "--only", "c"])
    assert done.exit_code == 2 and "no variant 'c'; it has a, b" in done.stderr


def test_runs_go_seed_by_seed(file: Path, tmp_path: Path) -> None:
    runs = [(variant, seed) for variant, seed, _ in Sweep.read(file).runs(tmp_path)]
    assert runs == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("seeds: [1, 2]", ""), "seeds is missing"),
        (("seeds: [1, 2]", "seeds: [one]"), "seeds[0]"),
        (("name: two", "nmae: two"), "did you mean name"),
        (("variants: {a: [], b: [algorithm=starpo_s]}", "variants: {}"), "not empty"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(file: Path, change: tuple[str, str], words: str) -> None:
    file.write_text(SWEEP.replace(*change))
    with pytest.raises(RecipeError, match=words.replace("[", r"\[").replace("]", r"\]")):
        Sweep.read(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["sweep", str(tmp_path / "none.yaml")])
    assert done.exit_code == 2 and "There is no sweep" in done.stderr


def test_a_file_that_is_no_yaml_is_one_sentence(file: Path) -> None:
    file.write_text("name: [two\nrecipe: x\n")
    done = CliRunner().invoke(app, ["sweep", str(file)])
    assert done.exit_code == 2 and "is no YAML, line 2" in done.stderr


def test_no_run_starts_while_one_of_them_is_wrong(file: Path, tmp_path: Path) -> None:
    file.write_text(SWEEP.replace("b: [algorithm=starpo_s]", "b: [algorithm=starpo]"))
    done = CliRunner().invoke(app, ["sweep", str(file), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 2 and "variant b, seed 1: There is no algorithm=starpo" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_what_an_episode_can_need_is_told_once_a_variant(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = SWEEP.replace("b: [algorithm=starpo_s]", "'b[i]': [ragen.rollout.max_turns=12]")
    assert long != SWEEP and file.write_text(long)
    monkeypatch.setattr(sweeps, "train", lambda *run: 1)
    done = CliRunner().invoke(app, ["sweep", str(file), "--runs", str(tmp_path / "runs")])
    told = [line.partition(": An episode of FrozenLake can need ")[::2] for line in done.stderr.splitlines()]
    assert [name for name, _ in told] == ["a", "b[i]"]
    assert "5 of 5 turns fit" in told[0][1] and "of 12 turns fit" in told[1][1]
    assert "two 2/4: b[i], seed 1" in done.stdout


def test_finished_runs_are_not_run_again(file: Path, tmp_path: Path) -> None:
    sweep = Sweep.read(file)
    for _, seed, folder in sweep.runs(tmp_path / "runs"):
        finish(folder, seed)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert sweeps.run(sweep, tmp_path / "runs", Console(file=io.StringIO())) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_report_has_a_row_a_variant_and_counts_finished_seeds(file: Path, tmp_path: Path) -> None:
    sweep = Sweep.read(file)
    folders = {(variant, seed): folder for variant, seed, folder in sweep.runs(tmp_path / "runs")}
    for seed in (1, 2):
        finish(folders["a", seed], seed)
    finish(folders["b", 1], 1)
    folders["b", 1].summary.unlink()  # still running
    out = tmp_path / "out"
    arguments = ["sweep", str(file), "--runs", str(tmp_path / "runs"), "--out", str(out), "--report-only"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads((out / "two.json").read_text())
    assert [(one["variant"], one["seed"], bool(one["summary"])) for one in found["runs"]] == [
        ("a", 1, True),
        ("b", 1, False),
        ("a", 2, True),
    ]
    rows = {line.split()[0]: line for line in done.output.splitlines() if line.split()[:1] in (["a"], ["b"])}
    assert rows["a"].split()[1] == "2" and "0.250 ± 0.000" in rows["a"] and rows["b"].split()[1] == "0"
    assert (out / "two.png").read_bytes().startswith(b"\x89PNG")


def test_mean_of_one_and_of_none() -> None:
    assert sweeps.mean_and_deviation([]) == "-"
    assert sweeps.mean_and_deviation([0.5]) == "0.500"
    assert sweeps.mean_and_deviation([0.4, 0.6]) == "0.500 ± 0.141"
