"""The tokenizer of models with random weights: any text comes back, and a prompt costs about a token a word."""

from __future__ import annotations

from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from ragen_lab.qualify import tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ragen_verl import make

WORDS = regex.compile(r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    folder = tmp_path_factory.mktemp("model")
    ids = tokenizer.build(folder, 151936)
    found = AutoTokenizer.from_pretrained(folder)
    assert ids == {"eos_token_id": found.eos_token_id, "pad_token_id": found.pad_token_id}
    assert len(set(ids.values())) == 2
    return found


@given(st.text(max_size=200))
def test_any_text_comes_back(made: PreTrainedTokenizerBase, text: str) -> None:
    text = made.backend_tokenizer.normalizer.normalize_str(text)
    assert made.decode(made.encode(text), skip_special_tokens=False) == text


@pytest.mark.parametrize("name", ["Sokoban-v0", "FrozenLake-v0"])
def test_an_instruction_costs_about_a_token_a_word(made: PreTrainedTokenizerBase, name: str) -> None:
    env = make(name)
    env.reset(seed=0)
    text = env.instruction
    tokens, words = len(made.encode(text)), len(WORDS.findall(text))
    assert 0.9 * words < tokens < 1.4 * words


def test_a_small_vocabulary_is_not_exceeded(tmp_path: Path) -> None:
    tokenizer.build(tmp_path, 2048)
    assert len(AutoTokenizer.from_pretrained(tmp_path)) <= 2048
