"""Patches that stock verl and vLLM need on every device; those for machines without a GPU are in `ragen_verl.cpu`."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ragen_verl.patches.critic import CRITIC_PATCHES
from ragen_verl.patches.pause import PAUSE_PATCHES
from ragen_verl.patches.separate import SEPARATE_PATCHES
from ragen_verl.patches.weights import WEIGHT_PATCHES

__all__ = ["PATCHES"]


def _later(name: str) -> Callable[[Any], None]:
    """A patch whose file imports torch, which is imported only once it is due."""
    return lambda module: import_module(f"ragen_verl.patches.{name}").apply(module)


PATCHES = {
    **WEIGHT_PATCHES,
    **CRITIC_PATCHES,
    **PAUSE_PATCHES,
    **SEPARATE_PATCHES,
    "verl.utils.torch_functional": _later("logits"),
    "transformers.modeling_utils": _later("varlen"),
}
"""Module name -> the patch that is applied once that module has been imported."""
