"""docs/your_own_filter.md, followed word for word; only the trainings are composed and checked instead of run."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from doc_pages import Page, Reader

from ragen_verl.filter import Candidates, Score, Strategy

PAGE = Page("your_own_filter.md")
BY_NAME, BY_FILE = PAGE.trainings
TEST = ".venv/bin/python -m pytest my_filter"


@pytest.fixture(scope="module")
def follow(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader of the page who has installed the package."""
    return PAGE.follow(tmp_path_factory.mktemp("page")).install(PAGE.commands[0])


def test_page_of_filters_leads_from_files_to_trainings() -> None:
    assert list(PAGE.files) == [f"my_filter/{name}" for name in ("spaced.py", "pyproject.toml", "test_spaced.py")]
    assert PAGE.commands == ["make add PACKAGE=./my_filter", TEST, BY_NAME, BY_FILE]


def test_the_pages_test_of_the_filter_passes(follow: Reader) -> None:
    done = follow(TEST)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_trainings_with_the_filter_are_accepted_and_mistakes_not(follow: Reader) -> None:
    wrong = {
        BY_NAME.replace("=spaced", "=spacd"): "ragen.filter.strategy is 'spacd', which is no filter strategy: "
        "did you mean spaced?",
        BY_NAME.replace("=width", "=widht"): "ragen.filter.score is 'widht', which is no filter score",
        BY_NAME.replace("count", "cuont"): "ragen.filter.cuont is not a key of ragen.filter: did you mean count?",
        BY_NAME.replace("=8", "=0"): "ragen.filter.count is 0 but has to be a whole number of 1 or more",
        BY_NAME + " ragen.filter.value=0.5": "ragen.filter.value is 0.5 but ragen.filter.strategy is spaced",
        BY_NAME + " actor_rollout_ref.rollout.n=1": "compares the trajectories of a group",
        BY_NAME + " ragen.filter.cross_fit=true actor_rollout_ref.rollout.n=3": "use n of 4 or more",
    }
    first, second, *refused = follow.check([BY_NAME, BY_NAME + " ragen.filter.cross_fit=true", *wrong])
    assert first.startswith("accepted") and second.startswith("accepted"), (first, second)
    for message, words in zip(refused, wrong.values(), strict=True):
        assert message.startswith("refused") and words in message


def test_filter_file_is_enough_without_installing(tmp_path_factory: pytest.TempPathFactory) -> None:
    [line] = PAGE.follow(tmp_path_factory.mktemp("not installed")).check([BY_FILE])
    assert line.startswith("accepted")


def test_page_names_all_that_scores_and_strategies_have() -> None:
    named = {
        name for row in re.findall(r"^\| (`.+?) \|", PAGE.text, flags=re.MULTILINE) for name in re.findall(r"\w+", row)
    }
    for kind in (Candidates, Score, Strategy):
        assert {one.name for one in fields(kind)} - {"function", "name"} <= named
