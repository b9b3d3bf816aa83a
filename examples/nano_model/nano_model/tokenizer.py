"""The nano model's tokenizer: few tokens for the fixed sentences, one token for each cell of a map.

A tiny model on a CPU pays for every token, and it reads a map best when each cell is its own token. So

* the fixed sentences of the prompts (rendered from the real protocol and environments, see `phrases.py`) are single
  ordinary tokens, as are `<think>`, `</think>`, `<answer>` and `</answer>`;
* digits, line breaks and the symbols of the grids have no merges and therefore stay alone;
* the words of the scripted players are single tokens; anything else is spelled with letters or bytes, so any text can
  be encoded and comes back unchanged (Unicode in NFC form, as with Qwen2.5).

The pipeline is Qwen2's own byte-level BPE, piece by piece: transformers 5 replaces any other tokenizer class when the
model is a Qwen2 (`MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS`), silently and with other ids. Only the three chat markers
are special, so decoding a response keeps its tags.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ragen_verl.rollout.protocols.ragen import TAGS

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
ROLES = ("system\n", "user\n", "assistant\n")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# How Qwen2 cuts text before merging: words with the blank before them, single digits, runs of marks, white space.
_QWEN2_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MAX_LENGTH = 4096


def build_tokenizer(words: Sequence[str], phrases: Sequence[str]) -> Tokenizer:
    """A tokenizer in which each of `words` (alone and after a blank) and each of `phrases` is one token.

    The same arguments give the same tokenizer, id by id.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    # Each word is seen often enough to be merged completely; a higher count for longer pieces is not needed.
    corpus = [text for word in words for text in (word, " " + word)] + ["√", " ||"]
    trainer = trainers.BpeTrainer(
        vocab_size=8000,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(corpus, trainer)
    markers, ordinary = (END_OF_TEXT, START, END), dict.fromkeys([*TAGS, *ROLES, *phrases])
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in markers])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in ordinary])
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> PreTrainedTokenizerBase:
    """Write the tokenizer as a Hugging Face one and return it as `AutoTokenizer` loads it.

    A `config.json` of a Qwen2 model should be in `folder` already: it decides the class that is loaded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "unk_token": END_OF_TEXT,
        "model_max_length": MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return AutoTokenizer.from_pretrained(folder)
