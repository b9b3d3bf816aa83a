"""Facts about machines, also those in containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragen_verl import machine
from ragen_verl.cpu import accelerator


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU whose container has no `nvidia-smi`."""
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    (tmp_path / "driver" / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (tmp_path / "driver" / "gpus" / "0000:01:00.0" / "information").write_text("Model: \t\t NVIDIA H100\nIRQ: 1\n")
    monkeypatch.setattr(machine, "_DEV", tmp_path / "dev")
    monkeypatch.setattr(machine, "_DRIVER", tmp_path / "driver")
    for name in ("PATH", "VERL_PLATFORM", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")


@pytest.mark.usefixtures("container")
def test_a_gpu_counts_without_nvidia_smi() -> None:
    assert machine.nvidia_smi() == ["NVIDIA H100"]
    assert machine.nvidia_devices() == ["nvidia0"]
    assert accelerator.accelerator_present()


@pytest.mark.usefixtures("container")
def test_a_gpu_that_the_container_was_not_given_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "dev" / "nvidia0").unlink()
    assert machine.nvidia_smi() == machine.nvidia_devices() == []


@pytest.mark.usefixtures("container")
def test_the_users_switch_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    assert not accelerator.accelerator_present()
