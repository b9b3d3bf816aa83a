"""Patches that stock verl and vLLM need on every device; those for machines without a GPU are in `ragen_verl.cpu`."""

from ragen_verl.patches.critic import CRITIC_PATCHES
from ragen_verl.patches.pause import PAUSE_PATCHES
from ragen_verl.patches.separate import SEPARATE_PATCHES
from ragen_verl.patches.weights import WEIGHT_PATCHES

__all__ = ["PATCHES"]

PATCHES = {**WEIGHT_PATCHES, **CRITIC_PATCHES, **PAUSE_PATCHES, **SEPARATE_PATCHES}
"""Module name -> the patch that is applied once that module has been imported."""
