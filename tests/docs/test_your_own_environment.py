"""docs/your_own_environment.md, followed word for word; only the training is composed and checked instead of run."""

from __future__ import annotations

import re
import shlex
import subprocess
import textwrap
from importlib.metadata import version

import pytest
from checkout import checkout, run
from paths import ROOT

from ragen_verl.env_checker import RULES
from ragen_verl.env_checker.rules import IN_CALLS

PAGE = ROOT / "docs" / "your_own_environment.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
FILES = {text.splitlines()[0].removeprefix("# "): text for kind, text in BLOCKS if kind != "sh"}
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
TRAIN = [line for line in COMMANDS if line.startswith(".venv/bin/ragen-verl train")]
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
    """A function that runs a command of the page in a checkout where the page's files lie."""
    folder = checkout(tmp_path_factory.mktemp("page"))
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    installed = run(folder, COMMANDS[0])
    assert installed.returncode == 0, installed.stdout + installed.stderr

    def follow(command: str | list[str], said: str = "") -> subprocess.CompletedProcess:
        return run(folder, command if isinstance(command, str) else shlex.join(command), said)

    return follow


def test_the_stack_stays_as_it_was(follow):
    code = "from importlib.metadata import version; print(version('transformers'), version('verl'), version('my-env'))"
    assert follow([".venv/bin/python", "-c", code]).stdout.split() == [
        version("transformers"),
        version("verl"),
        "0.1.0",
    ]


def test_readme_page_and_example_are_one_environment():
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in ("guess_number.py", "pyproject.toml"):
        text = FILES[f"my_env/{name}"]
        assert (ROOT / "examples" / "my_env" / name).read_text("utf-8") == text.partition("\n")[2]
        assert textwrap.indent(text, "    ") in readme


def test_the_page_leads_from_two_files_to_a_training():
    assert list(FILES) == ["my_env/guess_number.py", "my_env/pyproject.toml", "my_env/test_guess_number.py"]
    assert COMMANDS[0] == "make add PACKAGE=./my_env" and COMMANDS[-1:] == TRAIN
    code = [line for line in FILES["my_env/guess_number.py"].splitlines()[1:] if line.strip()]
    assert len(code) <= 30


def test_every_command_between_installation_and_training_works(follow):
    expected = {
        ".venv/bin/ragen-verl env list": "GuessNumber-v0",
        ".venv/bin/ragen-verl env show": "1 to 32",
        ".venv/bin/ragen-verl env play": "stop reason: solved",
        ".venv/bin/ragen-verl env check": "No rule is broken",
        ".venv/bin/python -m pytest": "2 passed",
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


def test_the_pages_recipe_is_checked_and_mistakes_are_refused(follow):
    [command] = TRAIN
    wrong = [command.replace("largest: 32", "smallest: 32"), command.replace("GuessNumber-v0", "GuesNumber-v0")]
    done = follow([".venv/bin/python", "-c", COMPOSE, command, *wrong])
    assert done.returncode == 0, done.stderr
    good, argument, id = [line for line in done.stdout.splitlines() if line.startswith(("accepted", "refused"))]
    assert good == "accepted GuessNumber-v0 16 {'largest': 32}"
    assert argument.startswith("refused") and "it accepts largest" in argument
    assert id.startswith("refused") and "did you mean GuessNumber-v0" in id


def test_the_page_names_every_rule():
    table = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])} == {*RULES, *IN_CALLS}
