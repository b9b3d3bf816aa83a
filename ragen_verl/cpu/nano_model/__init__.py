"""The nano model: a Qwen2 of about 1 M parameters that plays, so that reinforcement learning on a CPU is real.

`nano_model_path()` gives the folder of the shipped weights; `examples/nano_model` makes them again from scratch.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache", "nano_model_path"]


def cache() -> Path:
    """The folder of the models that are built on this machine: in `RAGEN_CACHE`, or in the user's own cache."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ragen_verl"
    return Path(os.environ.get("RAGEN_CACHE") or home) / "nano"


def nano_model_path(which: str = "") -> Path:
    """The folder of shipped weights, a Hugging Face model that transformers, vLLM and verl can load.

    Args:
        which: `tools` for the model that calls tools.

    Raises:
        FileNotFoundError: the package was installed without its weights.
    """
    folder = Path(__file__).parent / which
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(f"{folder} holds no model: install the package again.")
    return folder
