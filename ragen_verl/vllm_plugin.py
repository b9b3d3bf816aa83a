"""What vLLM loads in each of its processes (entry point `vllm.general_plugins`): one hook, and nothing of verl.

It is loaded in every vLLM process on the machine, also in those that have nothing to do with a training.
"""

from __future__ import annotations

import inspect
from typing import Any

import wrapt


def register_vllm() -> None:
    """Keep linear weights loadable on vLLM's CPU build; nothing elsewhere, and nothing is imported before vLLM does."""
    wrapt.register_post_import_hook(keep_linear_weights, "vllm.model_executor.layers.utils")


def keep_linear_weights(module: Any) -> None:
    """vLLM packs linear weights and drops the originals, so a second load, verl's weight push, fails.

    The parameter it puts in their place has no `weight_loader` (model_executor/layers/linear.py:216,
    layers/utils.py:470). Plain `F.linear` on the original weights has the same result. Only the CPU build calls it.
    """
    import torch

    dispatch = getattr(module, "dispatch_cpu_unquantized_gemm", None)
    if dispatch is None or "remove_weight" not in inspect.signature(dispatch).parameters:
        return

    def plain_linear(layer: torch.nn.Module, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    module.dispatch_cpu_unquantized_gemm = plain_linear
