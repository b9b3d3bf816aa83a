"""A sweep's file, its runs in order, and what is made of the runs that are there."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from traces import healthy
from typer.testing import CliRunner

from ragen_verl import sweep as sweeps
from ragen_verl.cli import app
from ragen_verl.errors import RecipeError
from ragen_verl.run_folder import RunFolder
from ragen_verl.sweep import Sweep

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


@pytest.mark.parametrize("path", sorted((Path(__file__).parent.parent / "benchmarks" / "sweeps").glob("*.yaml")))
def test_the_sweeps_of_the_repository_can_be_read(path: Path) -> None:
    sweep = Sweep.read(path)
    assert sweep.name == path.stem
    assert len(list(sweep.runs(Path("runs")))) == len(sweep.seeds) * len(sweep.variants)


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


def test_spread_of_one_and_of_none() -> None:
    assert sweeps.spread([]) == "-"
    assert sweeps.spread([0.5]) == "0.500"
    assert sweeps.spread([0.4, 0.6]) == "0.500 ± 0.141"
