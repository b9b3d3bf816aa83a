"""Every command line in README and docs/ is one that the commands take: their names and their options exist."""

from __future__ import annotations

import re
import shlex

import pytest
import typer
from paths import ROOT

from ragen_verl.cli import app

LINE = re.compile(r"^(?: {4}|.*`)(?:\.venv/bin/)?(ragen-verl [^`\n#]+)", re.MULTILINE)
PAGES = sorted((ROOT / "README.md", *(ROOT / "docs").glob("*.md")))


def lines(text: str) -> list[str]:
    """The command lines of a page, those that go on behind a backslash in one piece."""
    return LINE.findall(re.sub(r"\s*\\\n\s*", " ", text))


def unknown(line: str) -> list[str]:
    """The words of a line that name no command and no option."""
    command, words = typer.main.get_command(app), shlex.split(line.replace("...", ""))[1:]
    while words and hasattr(command, "commands") and (inner := command.get_command(None, words[0])):
        command, words = inner, words[1:]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
    wrong = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return wrong + (words[:1] if hasattr(command, "commands") and words and not words[0].startswith("-") else [])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_of_a_page_exist(page):
    assert {line: wrong for line in lines(page.read_text()) if (wrong := unknown(line))} == {}


@pytest.mark.parametrize("line", ["ragen-verl evaluate x", "ragen-verl eval x --polcy random", "ragen-verl runs lst"])
def test_a_wrong_command_is_seen(line):
    assert unknown(line)


def test_lines_are_found_in_blocks_and_sentences():
    text = "    ragen-verl eval a \\\n        --policy b\n\nsay `ragen-verl doctor`, # ragen-verl no"
    assert lines(text) == ["ragen-verl eval a --policy b", "ragen-verl doctor"]
