"""A patch that loads the critic of verl 0.9.1 on a machine without flash-attention."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any

__all__ = ["critic_without_flash_attention"]


def critic_without_flash_attention(module: Any) -> None:
    """Load the critic with the recipe's attention; verl always asks for flash-attention 2 (utils/model.py:641-657)."""
    load = module.load_valuehead_model
    if "flash_attention_2" not in inspect.getsource(load):
        return

    @wraps(load)
    def with_configured_attention(local_path, torch_dtype, model_config, trust_remote_code):
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation=model_config._attn_implementation or "sdpa",
            trust_remote_code=trust_remote_code,
        )

    module.load_valuehead_model = with_configured_attention
