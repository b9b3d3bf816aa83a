"""What commands print stands there as it is: brackets of a path are no markup, colons around a word no emoji."""

from __future__ import annotations

import ast
import io
import time
from pathlib import Path

import pytest
from rich.console import Console

import ragen_verl
from ragen_verl.cli.console import console
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.progress import ProgressDisplay

PLAIN = {"Console": {"markup", "emoji"}, "TextColumn": {"markup"}}
SOURCES = [
    file
    for root in (Path(ragen_verl.__file__).parent, Path(ragen_verl.__file__).parents[1] / "lab")
    for file in root.rglob("*.py")
]


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def calls() -> list[tuple[Path, ast.Call]]:
    trees = ((file, ast.parse(file.read_text("utf-8"))) for file in SOURCES)
    return [(file, one) for file, tree in trees for one in ast.walk(tree) if isinstance(one, ast.Call)]


def test_nothing_that_prints_reads_markup() -> None:
    found = calls()
    assert sum(name_of(one) in PLAIN for _, one in found) >= 4
    for file, one in found:
        given = {
            word.arg for word in one.keywords if isinstance(word.value, ast.Constant) and word.value.value is False
        }
        whole = any(word.arg is None for word in one.keywords)  # the options of `ragen_verl.cli.console.console`
        assert whole or PLAIN.get(name_of(one), set()) <= given, (file, one.lineno)
        if name_of(one) in ("status", "Status") and one.args:  # rich reads the markup of a plain text there
            assert not isinstance(one.args[0], ast.JoinedStr), (file, one.lineno)


@pytest.mark.parametrize("text", ["/data/a:car:b/[bold]x[/]", "my_env.py:100:", "[/red]", "x\\", "[red]é"])
def test_a_phase_and_a_step_stand_there_as_they_are(tmp_path: Path, text: str) -> None:
    folder = RunFolder(tmp_path)
    for terminal in (True, False):
        out = Console(file=io.StringIO(), force_terminal=terminal, width=200, color_system=None, emoji=False)
        with ProgressDisplay(folder, out) as display:
            time.sleep(0.01)
            folder.phase.write_text(text)
            display.look()
        assert text in out.file.getvalue()


def test_the_console_of_commands_prints_text_as_it_is(capsys: pytest.CaptureFixture) -> None:
    for stderr in (False, True):
        console(stderr).print("a:car:[bold]b[/] [/x]")
    assert capsys.readouterr() == ("a:car:[bold]b[/] [/x]\n",) * 2
