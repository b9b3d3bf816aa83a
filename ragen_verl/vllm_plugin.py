"""The plugin that vLLM loads in each of its processes (entry point `vllm.general_plugins`): two patches, without verl.

vLLM calls it in every process on the machine. Where `ragen_verl.switch` is off it does nothing.
"""

from __future__ import annotations

import inspect
from typing import Any

from ragen_verl import switch

__all__ = ["compile_no_ranks", "keep_linear_weights", "register_vllm"]


def register_vllm() -> None:
    """Apply the table's patches of vLLM, if this process belongs to a run with ragen_verl."""
    if switch.is_on():
        from ragen_verl.patches import apply_patches

        apply_patches("vllm")


def compile_no_ranks(module: Any) -> None:
    """Make vLLM's CPU build count the ranks of sampled tokens without a compiler.

    vLLM compiles this one line, a comparison and a sum, whatever `enforce_eager` says (v1/sample/ops/logprobs.py:10):
    a C++ compiler works 16 s for it before the first step on a machine, and later runs load torch's compiler for 4 s.
    """
    from vllm.platforms import current_platform

    compiled = getattr(module, "batched_count_greater_than", None)
    plain = getattr(compiled, "_torchdynamo_orig_callable", None)
    if plain is not None and current_platform.is_cpu():
        module.batched_count_greater_than = plain


def keep_linear_weights(module: Any) -> None:
    """Make vLLM's CPU build keep the original linear weights, so that verl can load new ones.

    vLLM packs linear weights and drops the originals. The parameter that it puts in their place has no `weight_loader`
    (model_executor/layers/linear.py:216, layers/utils.py:470), so a second load, verl's weight push, fails. Plain
    `F.linear` on the original weights has the same result. Only the CPU build calls the replaced function.
    """
    import torch

    dispatch = getattr(module, "dispatch_cpu_unquantized_gemm", None)
    if dispatch is None or "remove_weight" not in inspect.signature(dispatch).parameters:
        return

    def plain_linear(layer: torch.nn.Module, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    module.dispatch_cpu_unquantized_gemm = plain_linear
