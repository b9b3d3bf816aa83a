"""docs/your_own_diagnostic.md, followed word for word; only the training is composed and checked instead of run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

PAGE = ROOT / "docs" / "your_own_diagnostic.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
FILES = {text.splitlines()[0].removeprefix("# "): text for kind, text in BLOCKS if kind != "sh"}
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
COMPOSE = """
import shlex, sys
from hydra import compose, initialize_config_module
from ragen_verl.config import register_resolvers
from ragen_verl.errors import RecipeError
from ragen_verl.validation.recipe import check
register_resolvers()
for command in sys.argv[1:]:
    recipe, *overrides = shlex.split(command)[2:]
    with initialize_config_module("ragen_verl.recipes", version_base=None):
        config = compose(recipe, overrides=overrides)
    try:
        ragen = check(config)
        print("accepted", ragen.diagnostics.causes["hedging"], ragen.diagnostics.indicators["hedging"])
    except RecipeError as error:
        print("refused", error)
"""


@pytest.fixture(scope="module")
def follow(tmp_path_factory):
    """A function that runs words where the page's files lie; pip installs offline, beside the rest."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(folder / "site"),
        "PIP_TARGET": str(folder / "site"),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # to pip that means: no isolation
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONWARNINGS": "ignore",
    }

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    assert "Successfully installed my-diagnostic" in run(*shlex.split(COMMANDS[0]))
    return run


def test_the_page_has_three_files_and_three_commands():
    assert list(FILES) == [
        "my_diagnostic/hedging.py",
        "my_diagnostic/pyproject.toml",
        "my_diagnostic/test_hedging.py",
    ]
    assert [command.split()[0] for command in COMMANDS] == ["pip", "pytest", "ragen-verl"]


def test_the_installed_cause_is_named(follow):
    assert "1 passed" in follow(*shlex.split(COMMANDS[1]))


def test_its_options_are_checked_before_the_training(follow):
    train = COMMANDS[2]
    said = follow(sys.executable, "-c", COMPOSE, train, train.replace("factor=4", "factor=much"))
    good, wrong = [line for line in said.splitlines() if line.startswith(("accepted", "refused"))]
    assert good == "accepted {'factor': 4} {'word': 'perhaps'}"
    assert wrong.startswith("refused ragen.diagnostics.causes.hedging.factor is 'much'")


def test_the_indicator_counts_turns(follow):
    code = (
        "from ragen_verl.diagnostics.echo_trap import StepIndicators\n"
        "turns = [{'reasoning': words, 'response': words, 'format_ok': True} for words in ('Maybe left', 'left')]\n"
        "records = [{'excluded': False, 'env_id': 'A', 'seed': 0, 'turns': turns}]\n"
        "print(StepIndicators()(records)['hedging/share'])"
    )
    assert follow(sys.executable, "-c", code).split()[-1] == "0.5"
