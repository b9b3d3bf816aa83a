"""The nano model's shape: a Qwen2 small enough to train on two CPU cores, large enough to read a map."""

from __future__ import annotations

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from nano_model.tokenizer import MAX_LENGTH

HIDDEN, LAYERS, HEADS, INTERMEDIATE = 128, 4, 4, 384


def nano_config(vocab_size: int, eos_id: int, pad_id: int) -> Qwen2Config:
    """The configuration; `vocab_size` must be the tokenizer's length exactly.

    An engine that pads the vocabulary samples ids the trainer knows nothing about. Heads are 32 wide because vLLM's CPU
    attention does not take narrower ones.
    """
    return Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        intermediate_size=INTERMEDIATE,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        initializer_range=0.04,
        eos_token_id=eos_id,
        pad_token_id=pad_id,
        bos_token_id=None,
    )


def nano_model(config: Qwen2Config, seed: int) -> Qwen2ForCausalLM:
    """A float32 model with fresh weights that depend on `seed` alone (the global generator is left as it was)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM._from_config(config, attn_implementation="sdpa", dtype=torch.float32)
