"""The nano model: a Qwen2 of about 1 M parameters that plays, so that reinforcement learning on a CPU is real.

`nano_model_path()` gives the folder of the shipped weights; `examples/nano_model` makes them again from scratch.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["nano_model_path"]


def nano_model_path() -> Path:
    """The folder of the shipped weights, a Hugging Face model that transformers, vLLM and verl can load.

    Raises:
        FileNotFoundError: the package was installed without its weights.
    """
    folder = Path(__file__).parent
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(f"{folder} holds no model: install the package again.")
    return folder
