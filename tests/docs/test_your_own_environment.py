"""docs/your_own_environment.md, followed word for word; only the training is composed and checked instead of run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from ragen_verl.env_checker import RULES
from ragen_verl.env_checker.rules import IN_CALLS

PAGE = ROOT / "docs" / "your_own_environment.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
FILES = {text.splitlines()[0].removeprefix("# "): text for kind, text in BLOCKS if kind != "sh"}
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
TRAIN = [line for line in COMMANDS if line.startswith("ragen-verl train")]
COMPOSE = """
import shlex, sys
from hydra import compose, initialize_config_module
from ragen_verl.config import RagenConfig, register_resolvers
from ragen_verl.errors import RecipeError
from ragen_verl.validation.recipe import check
register_resolvers()
for command in sys.argv[1:]:
    recipe, *overrides = shlex.split(command)[2:]
    with initialize_config_module("ragen_verl.recipes", version_base=None):
        config = compose(recipe, overrides=overrides)
    try:
        check(config)
        ragen = RagenConfig.from_omegaconf(config)
        print("accepted", ragen.train.envs[0].id, ragen.train.groups, ragen.val.envs[0].kwargs)
    except RecipeError as error:
        print("refused", error)
"""


@pytest.fixture(scope="module")
def follow(tmp_path_factory):
    """A function that runs a command of the page where the page's files lie; pip installs offline, beside the rest."""
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

    def run(command: str | list[str], said: str = "") -> subprocess.CompletedProcess:
        words = shlex.split(command) if isinstance(command, str) else command
        return subprocess.run(
            words, cwd=folder, env=environment, input=said, capture_output=True, text=True, timeout=300
        )

    installed = run(COMMANDS[0])
    assert "Successfully installed my-env" in installed.stdout, installed.stderr
    return run


def test_the_page_leads_from_two_files_to_a_training():
    assert list(FILES) == ["my_env/guess_number.py", "my_env/pyproject.toml", "my_env/test_guess_number.py"]
    assert COMMANDS[0] == "pip install ./my_env" and COMMANDS[-1:] == TRAIN
    code = [line for line in FILES["my_env/guess_number.py"].splitlines()[1:] if line.strip()]
    assert len(code) <= 30


def test_every_command_between_installation_and_training_works(follow):
    expected = {
        "ragen-verl env list": "GuessNumber-v0",
        "ragen-verl env show": "1 to 32",
        "ragen-verl env play": "stop reason: solved",
        "ragen-verl env check": "No rule is broken",
        "pytest": "2 passed",
    }
    unseen = set(expected)
    for command in COMMANDS[1:-1]:
        done = follow(command, said="".join(f"{guess}\n" for guess in ["hint", "oracle", *range(4, 17, 4)]))
        if "env play" in command:  # the plan is shown; play it
            plan = re.findall(r"^(?:.*> )?(\d+)$", done.stdout, flags=re.MULTILINE)[0]
            done = follow(command, said=f"hint\n{plan}\n")
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        [start] = [start for start in expected if command.startswith(start)]
        assert expected[start] in done.stdout, f"{command}\n{done.stdout}"
        unseen.discard(start)
    assert not unseen


def test_the_training_of_the_page_passes_every_check_and_mistakes_in_it_are_refused(follow):
    [command] = TRAIN
    wrong = [command.replace("largest: 32", "smallest: 32"), command.replace("GuessNumber-v0", "GuesNumber-v0")]
    done = follow([sys.executable, "-c", COMPOSE, command, *wrong])
    assert done.returncode == 0, done.stderr
    good, argument, id = [line for line in done.stdout.splitlines() if line.startswith(("accepted", "refused"))]
    assert good == "accepted GuessNumber-v0 16 {'largest': 32}"
    assert argument.startswith("refused") and "it accepts largest" in argument
    assert id.startswith("refused") and "did you mean GuessNumber-v0" in id


def test_the_page_names_every_rule():
    table = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])} == {*RULES, *IN_CALLS}
