"""`make add`: what a package needs is installed where it is missing, and what is there stays."""

from __future__ import annotations

import importlib.metadata
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest
from paths import ROOT

#: name -> (version, requirements); "there" is what an index has besides.
INSTALLED = {
    "ragen-verl": ("0.1.0", ["verl>=0.9.1", 'minigrid>=2.3; extra == "minigrid"', 'gone; python_version < "3"']),
    "verl": ("0.9.1", ["transformers<5.11"]),
    "transformers": ("5.19.0", []),
}
INDEX = {"minigrid": ("3.2.0", ["pygame", "transformers<5"]), "pygame": ("2.6", [])}


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with an index and an environment of a few packages in the place of pip's."""
    monkeypatch.syspath_prepend(str(ROOT / "requirements"))
    monkeypatch.delitem(sys.modules, "install", raising=False)
    spec = spec_from_file_location("add_script", ROOT / "requirements" / "add.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    here, calls = dict(INSTALLED), []

    def pip(*arguments: str) -> bool:
        calls.append(arguments)
        name = arguments[-1].split(">")[0].split("<")[0]
        here[name] = INDEX[name]
        return True

    def version(name: str) -> str:
        if name not in here:
            raise importlib.metadata.PackageNotFoundError(name)
        return here[name][0]

    monkeypatch.setattr(module, "pip", pip)
    monkeypatch.setattr(module.importlib.metadata, "version", version)
    monkeypatch.setattr(module.importlib.metadata, "requires", lambda name: here[name][1])
    module.calls, module.here = calls, here
    return module


def test_an_extra_brings_what_is_missing_and_keeps_the_stack(add: ModuleType, capsys: pytest.CaptureFixture) -> None:
    add.add("ragen-verl[minigrid]")
    assert add.calls == [("--no-deps", "minigrid>=2.3"), ("--no-deps", "pygame")]
    assert add.here["transformers"] == INSTALLED["transformers"]
    assert "transformers<5 is asked for; 5.19.0 is in the stack and stays." in capsys.readouterr().out


def test_what_is_there_is_not_installed_again(add: ModuleType) -> None:
    add.add("verl")
    assert add.calls == []
