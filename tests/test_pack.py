"""Packing for a machine without network: what is needed, Ray's wheel trimmed, parts that join to the whole."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "requirements"))
import pack


def test_what_the_other_machine_lacks_is_found() -> None:
    lacking = pack.closure(("ragen-verl",)) - pack.closure(pack.PRESENT)
    assert {"verl", "ray", "tensordict", "transferqueue", "hydra-core", "omegaconf", "peft"} <= lacking
    assert not {"torch", "transformers", "numpy"} & lacking


def test_a_trimmed_wheel_lists_what_it_has(tmp_path: Path) -> None:
    wheel = tmp_path / "ray-1-py3-none-any.whl"
    record = "ray/__init__.py,sha256=a,1\nray/rllib/x.py,sha256=b,1\nray-1.dist-info/RECORD,,\n"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("ray/__init__.py", "1")
        file.writestr("ray/rllib/x.py", "2")
        file.writestr("ray-1.dist-info/RECORD", record)
    pack.trim(wheel)
    with zipfile.ZipFile(wheel) as file:
        assert file.namelist() == ["ray/__init__.py", "ray-1.dist-info/RECORD"]
        assert "rllib" not in file.read("ray-1.dist-info/RECORD").decode()
        assert file.read("ray/__init__.py") == b"1"


def test_parts_join_to_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "PART", 10)
    archive = tmp_path / "packages.tar.xz"
    archive.write_bytes(bytes(range(25)))
    parts = pack.split(archive)
    assert [part.name[-2:] for part in parts] == ["00", "01", "02"] and not archive.exists()
    assert b"".join(part.read_bytes() for part in sorted(tmp_path.iterdir())) == bytes(range(25))
