"""What commands load before they do anything: heavy packages cost seconds, and looking at a run needs none of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import small_run

HEAVY = ("torch", "verl", "vllm", "ray", "transformers", "scipy", "matplotlib", "pandas")
LOADED = "import sys; print('loaded', *sorted({name.partition('.')[0] for name in sys.modules} & set(sys.argv[1:])))"


def loads(*arguments: str, of: tuple[str, ...]) -> list[str]:
    """The packages among `of` that a command loads."""
    code = f"from ragen_verl.cli import app\ntry:\n    app({list(arguments)!r})\nexcept SystemExit:\n    pass\n{LOADED}"
    done = subprocess.run([sys.executable, "-c", code, *of], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()[1:]


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("eval", "--help")])
def test_help_loads_nothing_that_computes(arguments: tuple[str, ...]) -> None:
    assert loads(*arguments, of=(*HEAVY, "numpy", "gymnasium", "omegaconf")) == []


@pytest.mark.parametrize("command", [("show",), ("report",), ("runs", "list")])
def test_looking_at_a_run_loads_no_trainer(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert loads(*command, str(small_run(tmp_path).path), of=HEAVY) == []


def test_a_recipe_that_is_none_is_refused_without_verl() -> None:
    assert loads("train", "nano/frozen_like", of=HEAVY) == []


def test_the_package_is_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "ragen_verl", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip()[0].isdecimal()


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("re", {"report", "resume", "recipes", "reproduce"}),
        ("env pl", {"play"}),
        ("train nano/fr", {"nano/frozen_lake", "nano/frozen_lake_starpo_s"}),
        ("eval nano/sok", {"nano/sokoban"}),
    ],
)
def test_the_shell_completes_commands_and_recipes(typed: str, found: set[str]) -> None:
    words = {"COMP_WORDS": f"ragen-verl {typed}", "COMP_CWORD": str(len(typed.split()))}
    asked = {**os.environ, **words, "_RAGEN_VERL_COMPLETE": "complete_bash"}
    code = "from ragen_verl.cli import app; app(prog_name='ragen-verl')"
    done = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True)
    assert set(done.stdout.split()) == found
