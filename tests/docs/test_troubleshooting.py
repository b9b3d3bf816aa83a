"""docs/troubleshooting.md quotes what the program prints, and the first hour's recipes are accepted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT
from typer.testing import CliRunner

from ragen_verl.cli import app

QUOTED = re.findall(r"^> (.+)$", (ROOT / "docs/troubleshooting.md").read_text("utf-8"), re.MULTILINE)
GAP = "\N{HORIZONTAL ELLIPSIS}"


def text_of(node: ast.AST) -> str:
    """A string of the source with a gap for everything that is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) if isinstance(part, ast.Constant) else GAP for part in node.values)
    return GAP


def sentences() -> Iterator[str]:
    for folder in ("ragen_verl", "lab"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Constant | ast.JoinedStr) and len(text := text_of(node)) > 20:
                    yield text


SENTENCES = list(sentences())


def is_printed(quote: str) -> bool:
    """Whether one sentence of the source holds the fixed parts of the quote in order."""
    parts = [re.escape(part.strip()) for part in quote.split(GAP) if part.strip()]
    pattern = re.compile(".*".join(parts), re.DOTALL)
    return any(pattern.search(text) for text in SENTENCES)


@pytest.mark.parametrize("quote", QUOTED)
def test_a_quoted_sentence_is_one_that_the_program_prints(quote: str) -> None:
    assert is_printed(quote)


def test_there_are_quotes_and_an_invented_one_is_seen() -> None:
    assert len(QUOTED) >= 10
    assert not is_printed(f"The engine of {GAP} has run away: catch it.")


@pytest.mark.parametrize("name", ["guess", "guess_gpu"])
def test_the_recipes_of_the_first_hour_are_accepted(name: str, tmp_path: Path) -> None:
    page = (ROOT / "docs/first_hour.md").read_text("utf-8")
    (text,) = re.findall(rf"^```yaml\n# {name}\.yaml\n(.+?)^```", page, re.DOTALL | re.MULTILINE)
    file = tmp_path / f"{name}.yaml"
    file.write_text(text.replace("GuessNumber-v0", "Bandit-v0"))  # one that is installed here
    done = CliRunner().invoke(app, ["train", str(file), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "ragen.val.seed" in done.output or "ragen.val.envs" in done.output
