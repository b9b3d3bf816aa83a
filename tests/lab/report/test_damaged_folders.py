"""Folders with damaged files: every command that reads them goes on without the damage or says it in one sentence."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from ragen_lab.convert import export
from ragen_lab.evaluate import spec
from saved_checkpoints import save
from small_runs import small_evaluation, small_run
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.errors import RecipeError
from ragen_verl.runs import launch, resume
from ragen_verl.runs.folder import RunFolder

CONVERT = ["convert", "RUN", "--out", "out.jsonl", "--to"]
COMMANDS = {
    "list": (["runs", "list", "RUN"], 10),
    "compare": (["runs", "compare", "RUN", "RUN"], 10),
    "report": (["report", "RUN", "EVAL", "--out", "out.html"], 10),
    "show": (["show", "RUN"], 10),
    "show an evaluation": (["show", "EVAL"], 8),
    "diagnose": (["diagnose", "RUN"], 10),
    "score": (["score", "RUN"], 8),
    "score an evaluation": (["score", "EVAL/first"], 10),
    "gate": (["gate", "EVAL/first", "--baseline", "EVAL/second"], 10),
    "export": (["export", "RUN"], 8),
    "sft": ([*CONVERT, "sft", "--split", "val"], 8),
    "preferences": ([*CONVERT, "preferences"], 8),
    "otel": ([*CONVERT, "otel"], 8),
    "eval": (["eval", "nano/frozen_lake", "--policy", "run:RUN", "--states", "1", "--out", "out"], 1),
    "eval again": (["eval", "nano/frozen_lake", "--policy", "random", "--states", "1", "--out", "EVAL"], 1),
    "resume": (["resume", "RUN", "--yes"], 1),
}
"""Name -> the command, and how many of the damages it meets."""
HYDRA = {
    "hydra.yaml": "hydra: {job: {config_name: nano/frozen_lake}, runtime: {config_sources: []}}",
    "config.yaml": "a: 1",
    "overrides.yaml": "[trainer.total_training_steps=9]",
}
DAMAGES = {
    "empty": lambda whole: b"",
    "not UTF-8": lambda whole: whole[:9] + b"\xff\xfe\x00\xd8\n" + whole,
    "a number": lambda whole: b"5\n",
    "a number at the end": lambda whole: whole + b"5\n[1]\n",
    "cut": lambda whole: whole[: len(whole) // 2],
    "a list": lambda whole: b'[1, {"a": 2}]\n',
    "nothing in it": lambda whole: b"{}\n",
    "too deep": lambda whole: b"[" * 5000,
    "other types": lambda whole: whole.replace(b": 1", b': "x"'),
    "missing": None,
    "a folder": None,
}
KNOWN = (  # what ended in a traceback once
    ("RUN/hydra/overrides.yaml", "a list"),
    ("RUN/metrics.jsonl", "a folder"),
    ("RUN/metrics.jsonl", "too deep"),
    ("RUN/settings.jsonl", "too deep"),
    ("RUN/preambles.jsonl", "too deep"),
    ("RUN/trajectories/val/000002.jsonl", "a folder"),
    ("EVAL/first/settings.json", "a list"),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with every file that a run writes, and an evaluation."""
    root = tmp_path_factory.mktemp("folders")
    run = small_run(root / "run", steps=2, groups=2, members=2, states=2).path
    (run / "hydra").mkdir()
    for name, text in HYDRA.items():
        (run / "hydra" / name).write_text(text)
    (run / "settings.jsonl").write_text('{"step": 2, "key": "a", "before": 1, "after": 2}\n')
    (run / "error.txt").write_text("ValueError: x\n")
    save(run / "checkpoints", 2)
    shutil.copytree(run / "checkpoints" / "global_step_2", run / "kept" / "best")
    (run / "kept" / "best" / "step.txt").write_text("2")
    return {"RUN": run, "EVAL": small_evaluation(root / "eval", states=2)}


def damaged(folders: dict[str, Path], name: str, count: int) -> list[tuple[Path, str]]:
    """Some pairs of a file and its damage: all that are known to matter, and others by chance."""
    read = [kind for kind in folders if kind in " ".join(COMMANDS[name][0])]
    files = [path for kind in read for path in sorted(folders[kind].rglob("*")) if path.is_file()]
    pairs = [(path, what) for path in files if path.suffix not in (".pt", ".png") for what in DAMAGES]
    known = [(folders[kind] / file, what) for one, what in KNOWN for kind, _, file in [one.partition("/")]]
    return [one for one in known if one[0] in files][:count] + random.Random(name).sample(pairs, count // 2)


@pytest.mark.parametrize("name", COMMANDS)
def test_damage_is_skipped_or_said_in_a_sentence(
    name: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for module, function in ((export, "merged"), (spec, "serving"), (launch, "train")):
        monkeypatch.setattr(module, function, refusing)
    command, count = COMMANDS[name]
    for kind, folder in folders.items():
        command = [one.replace(kind, str(folder)) for one in command]
    for file, what in damaged(folders, name, count):
        whole = file.read_bytes()
        file.unlink()
        if change := DAMAGES[what]:
            file.write_bytes(change(whole))
        elif what == "a folder":
            file.mkdir()
        try:
            done = CliRunner(charset="ascii").invoke(app, command)
        finally:
            shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
            file.write_bytes(whole)
        where = f"{file.name}, {what}: {done.exception!r}"
        assert done.exception is None or isinstance(done.exception, SystemExit), where
        assert done.exit_code in (0, 1, 2) and done.output.strip() and "Traceback" not in done.output, where


def refusing(*_: object, **__: object) -> None:
    """Where the commands would start verl or vLLM."""
    raise RecipeError("Nothing is started in this test.")


def test_lines_that_are_no_steps_are_skipped(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.metrics.write_bytes(b'{"step": 1}\n5\n\xff\n[2]\n{"step": 2, "note": "\xff"}\n{"st')
    assert [row["step"] for row in folder.rows()] == [1, 2]
    assert folder.recipe is None and folder.ragen_block() == {} and resume.history(folder) == {}
