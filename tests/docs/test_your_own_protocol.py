"""docs/your_own_protocol.md, followed word for word; only the training is composed and checked instead of run."""

from __future__ import annotations

import pytest
from doc_pages import Page, Reader

PAGE = Page("your_own_protocol.md")
TEST, TRAIN = PAGE.commands


@pytest.fixture(scope="module")
def follow(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return PAGE.follow(tmp_path_factory.mktemp("page"))


def test_page_of_protocols_leads_from_files_to_a_training(follow: Reader) -> None:
    assert list(PAGE.files) == ["my_protocol/react.py", "my_protocol/test_react.py"]
    assert PAGE.trainings == [TRAIN]
    done = follow(TEST)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_recipe_has_its_prompts_and_mistakes_are_refused(follow: Reader) -> None:
    show = "(ragen.rollout.chat_protocol().prefill, ragen.rollout.chat_protocol().turn(1, 'x', 2))"
    wrong = {
        TRAIN.replace("=react ", "=reakt "): "protocol is 'reakt', which is no protocol: did you mean react?",
        TRAIN.replace("observed", "observe"): "observe is not a key of ragen.rollout: did you mean observed?",
        TRAIN.replace("=react ", "=boxed "): "ragen.rollout.observed is Seen but ragen.rollout.protocol is boxed",
    }
    good, *refused = follow.check([TRAIN, *wrong], show)
    assert good.startswith("accepted ('Thought:', 'Seen 1: x\\nReply with \"Thought: [your thought]\"")
    for message, words in zip(refused, wrong.values(), strict=True):
        assert message.startswith("refused") and words in message
