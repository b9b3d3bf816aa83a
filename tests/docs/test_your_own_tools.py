"""docs/your_own_tools.md, followed word for word; only the training is composed and checked instead of run."""

from __future__ import annotations

import pytest
from doc_pages import Page, Reader

PAGE = Page("your_own_tools.md")
TEST, TRAIN = PAGE.commands


@pytest.fixture(scope="module")
def follow(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return PAGE.follow(tmp_path_factory.mktemp("page"))


def test_page_of_tools_leads_from_files_to_a_training(follow: Reader) -> None:
    assert list(PAGE.files) == ["my_tools/lottery.py", "my_tools/test_lottery.py"]
    assert PAGE.trainings == [TRAIN]
    done = follow(TEST)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_recipe_has_the_tools_and_mistakes_are_refused(follow: Reader) -> None:
    show = "(ragen.rollout.chat_protocol().name, ragen.rollout.chat_protocol().max_result)"
    wrong = {
        TRAIN.replace("=tools ", "=tool "): "protocol is 'tool', which is no protocol: did you mean tools?",
        TRAIN.replace("max_result=2000", "max_result=2"): "max_result is 2 but has to be a whole number of 100 or more",
        TRAIN.replace("max_result=2000", "wire=hermez"): "which is no wire form: did you mean hermes?",
    }
    good, *refused = follow.check([TRAIN, *wrong], show)
    assert good == "accepted ('tools', 2000)"
    for message, words in zip(refused, wrong.values(), strict=True):
        assert message.startswith("refused") and words in message
