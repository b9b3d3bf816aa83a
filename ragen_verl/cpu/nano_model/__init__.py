"""Nano models: Qwen2s of a million parameters that play, for trainings on a CPU; `examples/nano_model` makes them."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache", "nano_model_path"]


def cache() -> Path:
    """The folder of the models that are built on this machine: in `RAGEN_CACHE`, or in the user's own cache."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ragen_verl"
    return Path(os.environ.get("RAGEN_CACHE") or home) / "nano"


def nano_model_path(which: str = "") -> Path:
    """The folder of shipped weights, which transformers, vLLM and verl load; "tools" is the model that calls tools."""
    folder = Path(__file__).parent / which
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(f"{folder} holds no model: install the package again.")
    return folder
