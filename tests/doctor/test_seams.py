"""The seams: what this package builds on of verl, found in its own source and compared with the installed verl."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from ragen_verl import verl_files
from ragen_verl.cli.resume import tell
from ragen_verl.doctor import recorded, seams
from ragen_verl.doctor.facts import locked

VERL = verl_files.folder()
TRAINER = "verl.trainer.ppo.v1.trainer_base.PPOTrainer"


@pytest.fixture
def other_verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], list[str]]:
    """The differences after one text in one file of verl became another."""
    copy = tmp_path / "verl"
    shutil.copytree(VERL, copy, ignore=lambda _, names: [one for one in names if one == "__pycache__"])

    def clear() -> None:
        for cached in (verl_files.resolve, verl_files.file, verl_files.tree):
            cached.cache_clear()

    def changed(file: str, before: str, after: str) -> list[str]:
        text = (copy / file).read_text()
        assert before in text
        (copy / file).write_text(text.replace(before, after))
        clear()
        return seams.differences()

    monkeypatch.setattr(verl_files, "folder", lambda: copy)
    yield changed
    clear()


def test_the_installed_verl_is_the_recorded_one() -> None:
    assert recorded()["verl"] == locked()["verl"]
    assert recorded()["seams"] == seams.installed(), "after the tests passed, `make lock` records it anew"


@pytest.mark.parametrize(
    "name",
    [
        f"{TRAINER}._step_once",  # overridden, defined in the base's base
        f"{TRAINER}._add_prompts_to_generate",  # only called
        "verl.trainer.ppo.core_algos.agg_loss",  # imported
        "verl.utils.tensordict_utils.assign_non_tensor",  # of an imported module
        "verl.utils.model.load_valuehead_model",  # replaced by a patch
        "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer.BucketedWeightSender._init_socket",
        *seams.DATA,
    ],
)
def test_seams_are_found_in_our_own_source(name: str) -> None:
    assert name in recorded()["seams"]


def test_no_python_prints_the_code_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "verl.utils.model.load_valuehead_model"
    before = seams._described(name)["code"]
    unparse = seams.ast.unparse
    monkeypatch.setattr(seams.ast, "unparse", lambda node: unparse(node).replace("'", '"'))  # as 3.12 prints f-strings
    assert seams._described(name)["code"] == before


def test_a_seam_that_moved_is_named(other_verl: Callable[[str, str, str], list[str]]) -> None:
    file = "trainer/ppo/v1/trainer_base.py"
    assert other_verl(file, "def _balance_batch(", "def _even_out(") == [f"{TRAINER}._balance_batch is gone"]
    gone = [f"{TRAINER}._balance_batch is gone"]
    arguments = other_verl(file, "def _compute_values(self, batch", "def _compute_values(self, rows")
    assert arguments == [*gone, f"{TRAINER}._compute_values has other arguments"]


def test_other_code_is_told_and_other_docstrings_are_not(other_verl: Callable[[str, str, str], list[str]]) -> None:
    file = "utils/seqlen_balancing.py"
    source = (VERL / file).read_text()
    docstring = source.split("def calculate_workload", 1)[1].split('"""')[1]
    assert other_verl(file, docstring, "Something else.") == []
    found = other_verl(file, "return 24576 * seqlen_list", "return 24577 * seqlen_list")
    assert found == ["verl.utils.seqlen_balancing.calculate_workload has other code"]


def test_train_says_in_one_line_that_verl_differs(
    other_verl: Callable[[str, str, str], list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    prepared = SimpleNamespace(
        config=OmegaConf.create({"trainer": {"resume_mode": "disable"}, "ragen": {"filter": {"cross_fit": False}}})
    )
    tell(prepared)
    assert capsys.readouterr().out == ""
    other_verl("trainer/ppo/v1/trainer_base.py", "def _balance_batch", "def _share_batch")
    monkeypatch.setattr(seams.importlib.metadata, "version", lambda name: "0.10.0")
    tell(prepared)
    (line,) = capsys.readouterr().out.splitlines()
    assert "verl 0.10.0 differs from the tested 0.9.1 in 1 places" in line and "1 of them are gone" in line
