"""The list for a new verl: what differs, whose it is, and the tests that meet it."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT

from ragen_verl import verl_files

SCRIPT = runpy.run_path(str(ROOT / "requirements" / "new_verl.py"))


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], str]:
    """The report for a copy of verl in which one text of one file became another."""
    copy = tmp_path / "verl"
    shutil.copytree(verl_files.folder(), copy, ignore=lambda _, names: [one for one in names if one == "__pycache__"])
    monkeypatch.setattr(verl_files, "folder", verl_files.folder)  # back again afterwards, with empty caches

    def changed(file: str, before: str, after: str) -> str:
        text = (copy / file).read_text()
        assert before in text
        (copy / file).write_text(text.replace(before, after))
        return SCRIPT["report"](copy)

    yield changed
    monkeypatch.undo()
    SCRIPT["look_in"](verl_files.folder())


def test_a_hook_that_is_gone_is_named_with_its_file_and_tests(report: Callable[[str, str, str], str]) -> None:
    found = report("trainer/ppo/v1/trainer_base.py", "def _balance_batch", "def _share_batch")
    assert "1 of " in found and "1 are gone" in found
    assert (
        "\nragen_verl/training/trainer.py\n    verl.trainer.ppo.v1.trainer_base.PPOTrainer._balance_batch is gone"
        in found
    )
    assert "tests/training/test_trainer.py" in found.splitlines()[-1]


def test_other_code_of_a_patched_place_is_told_for_the_patch(report: Callable[[str, str, str], str]) -> None:
    found = report("utils/model.py", "def load_valuehead_model(", "def load_valuehead_model(other, ")
    assert "\nragen_verl/patches/critic.py\n    verl.utils.model.load_valuehead_model has other arguments" in found


def test_the_tested_verl_has_nothing_to_tell() -> None:
    assert SCRIPT["report"](None).startswith("0 of ")
    assert len(SCRIPT["report"](None).splitlines()) == 1
