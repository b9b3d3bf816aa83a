"""docs/your_own_reward.md, followed word for word; only the training is composed and checked instead of run."""

from __future__ import annotations

import re

import pytest
from doc_pages import Page, Reader

from ragen_verl import Trajectory, Turn

PAGE = Page("your_own_reward.md")
TEST, TRAIN = PAGE.commands


@pytest.fixture(scope="module")
def follow(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return PAGE.follow(tmp_path_factory.mktemp("page"))


def test_page_of_rewards_leads_from_files_to_a_training(follow: Reader) -> None:
    assert list(PAGE.files) == ["my_reward/grounded.py", "my_reward/test_grounded.py"]
    assert PAGE.trainings == [TRAIN]
    done = follow(TEST)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_recipe_has_the_reward_and_mistakes_are_refused(follow: Reader) -> None:
    show = "[(name, weight, one.keywords) for name, (weight, one) in ragen.rewards.chosen.functions.items()]"
    wrong = {
        TRAIN.replace(
            "rewards.grounded.", "rewards.ground."
        ): "is 'ground', which is no reward: did you mean grounded?",
        TRAIN.replace("words=20", "words=0"): "words is 0 but has to be a whole number of 1 or more",
        TRAIN.replace("weight=0.1", "weight=much"): "weight is 'much' but has to be a finite number",
    }
    good, *refused = follow.check([TRAIN, *wrong], show)
    assert good == "accepted [('grounded', 0.1, {'words': 20})]"
    for message, words in zip(refused, wrong.values(), strict=True):
        assert message.startswith("refused") and words in message


def test_page_names_what_a_trajectory_and_a_turn_have() -> None:
    for kind, title in ((Trajectory, "in the trajectory"), (Turn, "in a turn")):
        table = PAGE.text.partition(f"| {title} |")[2].partition("\n\n")[0]
        named = {name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}
        assert named and named <= {*kind.__dataclass_fields__, *vars(kind)}
