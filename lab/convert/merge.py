"""Run verl's merger of FSDP shards in a separate process, and keep the weights in their saved dtype.

    python -m ragen_lab.convert.merge CHECKPOINT/actor FOLDER

verl casts every shard to bfloat16 (model_merger/fsdp_model_merger.py:187, 199), which changes a model that was trained
in float32. In this process that cast does nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from verl.model_merger.base_model_merger import ModelMergerConfig
from verl.model_merger.fsdp_model_merger import FSDPModelMerger

__all__ = ["merge"]


def merge(shards: Path, folder: Path) -> None:
    """Write the shards of a checkpoint's actor as a Hugging Face folder.

    Args:
        shards: `checkpoints/global_step_N/actor`.
        folder: the folder to write; it is made if missing.
    """
    torch.Tensor.bfloat16 = lambda tensor: tensor  # type: ignore[method-assign]
    config = ModelMergerConfig(
        operation="merge",
        backend="fsdp",
        local_dir=str(shards),
        target_dir=str(folder),
        hf_model_config_path=str(shards / "huggingface"),
    )
    merger = FSDPModelMerger(config)
    merger.merge_and_save()
    merger.cleanup()
    file = folder / "config.json"
    settings = json.loads(file.read_text())
    settings.pop("torch_dtype", None)
    file.write_text(json.dumps({**settings, "dtype": _dtype(folder)}, indent=2) + "\n")


def _dtype(folder: Path) -> str:
    """The dtype of the weights in a folder."""
    first = min(folder.glob("*.safetensors"))
    with safe_open(str(first), "pt") as weights:
        return str(weights.get_tensor(next(iter(weights.keys()))).dtype).removeprefix("torch.")


if __name__ == "__main__":
    merge(Path(sys.argv[1]), Path(sys.argv[2]))
