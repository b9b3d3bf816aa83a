"""A run's folder with damaged files: every command that reads it works on, or says what is wrong in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import small_run
from typer.testing import CliRunner

from ragen_verl.cli import app
from ragen_verl.runs import resume
from ragen_verl.runs.folder import RunFolder

COMMANDS = {
    "list": ("runs", "list"),
    "compare": ("runs", "compare", "FOLDER", "FOLDER"),
    "report": ("report",),
    "show": ("show",),
    "verdict": ("verdict",),
    "gate": ("gate", "FOLDER", "FOLDER"),
    "export": ("export",),
    "convert": ("convert", "FOLDER", "--to", "sft", "--out", "out.parquet"),
    "resume": ("resume",),
}
DAMAGES = {
    "metrics.jsonl": (b"5\n", b"\xff\xfe\n", b'{"step": "one"}\n', b"[1]\n"),
    "config.yaml": (b"a: {b: ", b"\xff", b"5\n"),
    "verdict.json": (b"5", b"\xff", b"{"),
    "summary.json": (b"5", b"\xff", b"{"),
    "hydra/hydra.yaml": (b"a: {b: ", b"\xff", b"5\n"),
    "hydra/config.yaml": (b"a: {b: ", b"\xff", b"5\n"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_folder_is_read_or_refused_in_a_sentence(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = small_run(tmp_path / "run").path
    (folder / "hydra").mkdir(exist_ok=True)
    (folder / "hydra" / "hydra.yaml").write_text("hydra: {job: {config_name: a}, runtime: {config_sources: []}}")
    (folder / "hydra" / "config.yaml").write_text("a: 1")
    (folder / "hydra" / "overrides.yaml").write_text("[]")
    command = [str(folder) if one == "FOLDER" else one for one in COMMANDS[name]]
    command = command if str(folder) in command else [*command, str(folder)]
    for file, damages in DAMAGES.items():
        whole = (folder / file).read_bytes() if (folder / file).exists() else None
        for damage in damages:
            (folder / file).write_bytes((whole or b"") + damage if file == "metrics.jsonl" else damage)
            done = CliRunner().invoke(app, command)
            assert done.exception is None or isinstance(done.exception, SystemExit), (file, damage, done.exception)
        (folder / file).unlink()
        if whole is not None:
            (folder / file).write_bytes(whole)


def test_lines_that_are_no_steps_are_skipped(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.metrics.write_bytes(b'{"step": 1}\n5\n\xff\n[2]\n{"step": 2, "note": "\xff"}\n{"st')
    assert [row["step"] for row in folder.rows()] == [1, 2]
    assert folder.recipe is None and folder.ragen_block() == {} and resume.history(folder) == {}
