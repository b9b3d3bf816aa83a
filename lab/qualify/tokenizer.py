"""A tokenizer for models with random weights, made without a network: about as many tokens of a prompt as Qwen2.5's.

The nano model's would do, but it has whole instructions as single tokens, and a step would look cheaper than it is.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

__all__ = ["build"]

_CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_WORDS = 8192
"""Entries: enough for the words of the environments' prompts to be one token each, as they are in Qwen2.5's."""


def build(folder: Path, vocabulary: int) -> dict[str, int]:
    """Write tokenizer.json and tokenizer_config.json: byte pairs, learned from the text of the package itself.

    Args:
        folder: of the model.
        vocabulary: of the model; the tokenizer has at most as many entries.

    Returns:
        `eos_token_id` and `pad_token_id` for the model's configuration.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    nano = Path(str(files("ragen_verl.cpu"))) / "nano_model"
    made, like = Tokenizer(models.BPE()), Tokenizer.from_file(str(nano / "tokenizer.json"))
    made.normalizer, made.pre_tokenizer, made.decoder = like.normalizer, like.pre_tokenizer, like.decoder
    trainer = trainers.BpeTrainer(
        vocab_size=min(_WORDS, vocabulary),
        special_tokens=_CONTROL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [file for name in ("ragen_verl", "ragen_envs") for file in Path(str(files(name))).rglob("*.py")]
    made.train([str(file) for file in sorted(texts)], trainer)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text((nano / "tokenizer_config.json").read_text())
    own = json.loads((nano / "tokenizer_config.json").read_text())
    return {f"{name}_token_id": made.token_to_id(own[f"{name}_token"]) for name in ("eos", "pad")}
