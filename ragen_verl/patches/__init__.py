"""The changes that this package makes to stock verl and vLLM: one table, and the patches for all devices.

Those for machines without an accelerator are in `ragen_verl.cpu`, those that vLLM loads in `ragen_verl.vllm_plugin`.
"""

from ragen_verl.patches.application import apply_patches, check_left_out
from ragen_verl.patches.table import PATCHES, Patch

__all__ = ["PATCHES", "Patch", "apply_patches", "check_left_out"]
