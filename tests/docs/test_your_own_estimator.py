"""docs/your_own_estimator.md, followed word for word; only the trainings are composed and checked instead of run."""

from __future__ import annotations

import re

import forked
import pytest
from doc_pages import Page, Reader

from ragen_verl.advantages.batch import AdvantageBatch

PAGE = Page("your_own_estimator.md")
BY_NAME, BY_FILE = PAGE.trainings
TEST = ".venv/bin/python -m pytest my_estimator"


@pytest.fixture(scope="module")
def follow(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader of the page who has installed the package."""
    return PAGE.follow(tmp_path_factory.mktemp("page")).install(PAGE.commands[0])


def test_page_leads_from_files_to_trainings() -> None:
    files = ["bounded.py", "pyproject.toml", "test_bounded.py"]
    assert list(PAGE.files) == [f"my_estimator/{name}" for name in files]
    assert PAGE.commands == ["make add PACKAGE=./my_estimator", TEST, BY_NAME, BY_FILE]


def test_its_test_passes(follow: Reader) -> None:
    done = follow(TEST)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_its_trainings_pass_every_check_and_mistakes_do_not(follow: Reader) -> None:
    wrong = {
        BY_NAME.replace("=bounded", "=bouned"): "algorithm.adv_estimator is 'bouned', which is no advantage estimator: "
        "did you mean bounded?",
        BY_NAME.replace("sharpness", "sharpnes"): "did you mean sharpness?",
        BY_NAME.replace("4.0", "0"): "ragen.advantage.sharpness is 0.0 but has to be a number above 0",
        BY_NAME.replace("4.0", "steep"): "ragen.advantage.sharpness is 'steep' but has to be a number above 0",
        BY_NAME + " critic.enable=true": "critic.enable is true but algorithm.adv_estimator bounded ignores",
        BY_NAME + " actor_rollout_ref.rollout.n=1": "bounded compares the trajectories of a group",
        BY_FILE.replace("bounded.py", "bound.py"): "ragen.plugins names my_estimator/bound.py, and there is no file",
    }
    first, *refused = follow.check([BY_NAME, *wrong])
    assert first == "accepted bounded"
    for message, words in zip(refused, wrong.values(), strict=True):
        assert message.startswith("refused") and words in message


def test_file_is_enough_without_installing(tmp_path_factory: pytest.TempPathFactory) -> None:
    [line] = PAGE.follow(tmp_path_factory.mktemp("not installed")).check([BY_FILE])
    assert line == "accepted bounded"


def test_loss_of_the_page_is_registered_with_verl(follow: Reader) -> None:
    [loss] = re.findall(
        r"^```python\n(from ragen_verl import policy_loss.*?)^```$", PAGE.text, flags=re.DOTALL | re.MULTILINE
    )
    file = follow.folder / "loss.py"
    file.write_text(loss)
    code = (
        "import torch; from types import SimpleNamespace\n"
        "from verl.trainer.ppo.core_algos import get_policy_loss_fn\n"
        "ones = torch.ones(2, 3)\n"
        "given = dict(old_log_prob=ones, log_prob=-ones, advantages=2 * ones, response_mask=ones)\n"
        "config = SimpleNamespace(global_batch_info={})\n"
        "loss = get_policy_loss_fn('plain_policy_gradient')(**given, loss_agg_mode='token-mean', config=config)[0]\n"
        "print('loss', float(loss))"
    )
    done = forked.run(code, RAGEN_VERL_PLUGINS=str(file))
    assert "loss 2.0" in done.stdout, done.stdout + done.stderr


def test_page_names_what_the_batch_has() -> None:
    table = [line for line in PAGE.text.splitlines() if line.startswith("| `")]
    named = {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert named <= {*AdvantageBatch.__dataclass_fields__, *vars(AdvantageBatch)}
