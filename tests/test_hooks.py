"""Hooks on other packages' modules."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from ragen_verl import hooks


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of another package, which nobody has imported."""
    (tmp_path / "somebody_elses.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(hooks, "HOOKED", [])
    monkeypatch.setattr(hooks, "FAILED", {})
    return "somebody_elses"


def test_a_hook_that_fails_ends_no_import(other: str, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(module: ModuleType) -> None:
        module.value = module.name_of_a_later_version

    def sound(module: ModuleType) -> None:
        module.value += 1

    for hook in (broken, sound):
        hooks.after_import(other, hook)
    assert importlib.import_module(other).value == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{other} stays as it is" in line and "name_of_a_later_version" in line
    assert "name_of_a_later_version" in hooks.FAILED[other] and set(hooks.HOOKED) == {other}


def test_every_hook_of_ours_is_one_that_may_fail() -> None:
    package = Path(hooks.__file__).parent
    direct = [path.name for path in package.rglob("*.py") if "register_post_import_hook" in path.read_text()]
    assert direct == ["hooks.py"]
