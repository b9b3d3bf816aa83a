"""`make add`: what uv is told, without installing anything."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "requirements"))
import add
import lock


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, list[str]]]:
    """Adds a package: option -> the lines of its file; "" -> the other arguments."""

    def run(wanted: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}

        def install(*arguments: str) -> bool:
            stays, left_out = arguments[1::2][:2]
            assert arguments[:4:2] == ("--overrides", "--excludes")
            found.update(
                {
                    one: Path(file).read_text().split("\n")
                    for one, file in zip(("stays", "left out"), (stays, left_out), strict=True)
                }
            )
            found["asked"] = list(arguments[4:])
            return True

        monkeypatch.setattr(add, "install", install)
        monkeypatch.setattr(add, "uv", lambda: "uv")
        add.add(wanted)
        return found

    return run


def test_what_is_there_stays_whatever_a_package_asks_for(told: Callable[[str], dict[str, list[str]]]) -> None:
    found = told("ragen-verl[minigrid]")
    assert found["asked"] == ["ragen-verl[minigrid]"]
    assert {f"{one}=={importlib.metadata.version(one)}" for one in ("verl", "transformers")} <= set(found["stays"])
    assert set(found["left out"]) == set(lock.LEFT_OUT) - set(lock.installed())


def test_a_package_that_is_left_out_can_be_asked_for(told: Callable[[str], dict[str, list[str]]]) -> None:
    assert "wandb" not in told("wandb>=0.20")["left out"]


def test_a_folder_is_installed_anew(told: Callable[[str], dict[str, list[str]]]) -> None:
    folder = str(ROOT / "examples" / "my_env")
    assert told(folder)["asked"] == ["--reinstall-package", "my-env", folder]


def test_without_uv_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add, "uv", lambda: None)
    with pytest.raises(SystemExit, match="pip would replace parts of the stack"):
        add.add("wandb")
