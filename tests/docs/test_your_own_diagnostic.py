"""docs/your_own_diagnostic.md, followed word for word; only the training is composed and checked instead of run."""

from __future__ import annotations

import pytest
from doc_pages import Page, Reader

PAGE = Page("your_own_diagnostic.md")
INSTALL, TEST, TRAIN = PAGE.commands


@pytest.fixture(scope="module")
def follow(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader of the page who has installed the package."""
    return PAGE.follow(tmp_path_factory.mktemp("page")).install(INSTALL)


def test_page_of_diagnostics_leads_from_files_to_a_training() -> None:
    files = ["hedging.py", "pyproject.toml", "test_hedging.py"]
    assert list(PAGE.files) == [f"my_diagnostic/{name}" for name in files]
    assert PAGE.trainings == [TRAIN]


def test_the_installed_cause_is_named(follow: Reader) -> None:
    assert "1 passed" in follow(TEST).stdout


def test_its_options_are_checked_before_the_training(follow: Reader) -> None:
    wanted = [TRAIN, TRAIN.replace("factor=4", "factor=much")]
    show = '(ragen.diagnostics.causes["hedging"], ragen.diagnostics.indicators["hedging"])'
    good, wrong = follow.check(wanted, show)
    assert good == "accepted ({'factor': 4}, {'word': 'perhaps'})"
    assert wrong.startswith("refused ragen.diagnostics.causes.hedging.factor is 'much'")


def test_the_indicator_counts_turns(follow: Reader) -> None:
    code = (
        "from ragen_verl.diagnostics.echo_trap import StepIndicators\n"
        "turns = [{'reasoning': words, 'response': words, 'format_ok': True} for words in ('Maybe left', 'left')]\n"
        "records = [{'excluded': False, 'env_id': 'A', 'seed': 0, 'turns': turns}]\n"
        "print(StepIndicators()(records)['hedging/share'])"
    )
    assert follow([".venv/bin/python", "-c", code]).stdout.split()[-1] == "0.5"
