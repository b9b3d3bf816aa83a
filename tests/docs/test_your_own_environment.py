"""docs/your_own_environment.md, followed word for word; only the training is composed and checked instead of run."""

from __future__ import annotations

import re
import textwrap
from importlib.metadata import version

import pytest
from doc_pages import Page, Reader
from paths import ROOT
from ragen_lab.checker import RULES
from ragen_lab.checker.rules import IN_CALLS

PAGE = Page("your_own_environment.md")
[TRAIN] = PAGE.trainings


@pytest.fixture(scope="module")
def follow(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader of the page who has installed the package."""
    return PAGE.follow(tmp_path_factory.mktemp("page")).install(PAGE.commands[0])


def test_the_stack_stays_as_it_was(follow: Reader) -> None:
    code = "from importlib.metadata import version; print(version('transformers'), version('verl'), version('my-env'))"
    assert follow([".venv/bin/python", "-c", code]).stdout.split() == [
        version("transformers"),
        version("verl"),
        "0.1.0",
    ]


def test_readme_page_and_example_are_one_environment() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in ("guess_number.py", "pyproject.toml"):
        text = PAGE.files[f"my_env/{name}"]
        assert (ROOT / "examples" / "my_env" / name).read_text("utf-8") == text.partition("\n")[2]
        assert textwrap.indent(text, "    ") in readme


def test_the_page_leads_from_two_files_to_a_training() -> None:
    assert list(PAGE.files) == ["my_env/guess_number.py", "my_env/pyproject.toml", "my_env/test_guess_number.py"]
    assert PAGE.commands[0] == "make add PACKAGE=./my_env" and PAGE.commands[-1] == TRAIN
    code = [line for line in PAGE.files["my_env/guess_number.py"].splitlines()[1:] if line.strip()]
    assert len(code) <= 30


def test_every_command_between_installation_and_training_works(follow: Reader) -> None:
    expected = {
        ".venv/bin/ragen-verl env list": "GuessNumber-v0",
        ".venv/bin/ragen-verl env show": "1 to 32",
        ".venv/bin/ragen-verl env play": "stop reason: solved",
        ".venv/bin/ragen-verl env check": "No rule is broken",
        ".venv/bin/python -m pytest": "2 passed",
    }
    unseen = set(expected)
    for command in PAGE.commands[1:-1]:
        done = follow(command, said="".join(f"{guess}\n" for guess in ["hint", "oracle", *range(4, 17, 4)]))
        if "env play" in command:  # the plan is shown; play it
            plan = re.findall(r"^(?:.*> )?(\d+)$", done.stdout, flags=re.MULTILINE)[0]
            done = follow(command, said=f"hint\n{plan}\n")
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        [start] = [start for start in expected if command.startswith(start)]
        assert expected[start] in done.stdout, f"{command}\n{done.stdout}"
        unseen.discard(start)
    assert not unseen


def test_the_pages_recipe_is_checked_and_mistakes_are_refused(follow: Reader) -> None:
    wrong = [TRAIN.replace("largest: 32", "smallest: 32"), TRAIN.replace("GuessNumber-v0", "GuesNumber-v0")]
    show = "ragen.train.envs[0].id, ragen.train.groups, ragen.val.envs[0].kwargs"
    good, argument, id = follow.check([TRAIN, *wrong], show)
    assert good == "accepted ('GuessNumber-v0', 16, {'largest': 32})"
    assert argument.startswith("refused") and "it accepts largest" in argument
    assert id.startswith("refused") and "did you mean GuessNumber-v0" in id


def test_the_page_names_every_rule() -> None:
    table = [line for line in PAGE.text.splitlines() if line.startswith("| `")]
    assert {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])} == {*RULES, *IN_CALLS}
