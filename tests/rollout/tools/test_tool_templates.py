"""The original chat templates in the `trl` wheel: which form each has, and that the ids are the template's own."""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path

import pytest
from tool_templates import tokenizer

from ragen_verl.errors import RecipeError
from ragen_verl.rollout.protocols.tools import Results, Tools
from ragen_verl.rollout.tools.chat import ToolChat
from ragen_verl.rollout.tools.form import Call

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("trl") is None, reason="pip install --no-deps trl==1.16.0"),
]
FORMS = {
    "hermes": "qwen2_5 qwen3 qwen3_instruct_2507 qwen3_vl",
    "qwen_xml": "qwen3_5_nothink qwen3_5_think qwen3_6 qwen3_8 nemotron_3_5_lightning nemotron_3_nano nemotron_3_super "
    "nemotron_3_ultra",
    "glm": "glm4moe",
    "llama": "llama3_1 llama3_2",
    "lfm": "lfm2_2_5 lfm2_2_5_v2 lfm2_2_5_vl lfm2_v2",
    "gemma": "diffusion_gemma gemma4 gemma4_v2 gemma4_v3 gemma4_v4 gemma4_v5",
    "harmony": "gptoss",
    "muse": "muse_glimmer",
}
WITH_TOOLS = [(name, form) for form, names in FORMS.items() for name in names.split()]
WORDS = ["red", "green", "blue", "note", "code", "12", "the", "box", "is", "empty", "look"]
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look.",
        "parameters": {
            "type": "object",
            "properties": {"box": {"type": "string", "description": "A box."}},
            "required": ["box"],
        },
    },
}


def chat_of(name: str) -> ToolChat:
    folder = Path(find_spec("trl").origin).parent / "chat_templates"
    return Tools(think=False).chat(tokenizer((folder / f"{name}.jinja").read_text()))


def words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randrange(1, 8)))


@pytest.mark.parametrize(("name", "form"), WITH_TOOLS)
def test_each_template_has_its_form_and_ids(name, form):
    chat, rng = chat_of(name), random.Random(name)
    assert chat.form.name == form
    for _ in range(20):
        count = rng.randrange(1, 4) if chat.several else 1
        results = [words(rng) for _ in range(count)]
        calls = [
            {"type": "function", "id": f"sentinel{k}", "function": {"name": "look", "arguments": {"box": words(rng)}}}
            for k in range(count)
        ]
        asked = [{"role": "system", "content": words(rng)}, {"role": "user", "content": words(rng)}]
        said = [*asked, {"role": "assistant", "content": "", "tool_calls": calls}]
        said += [
            {"role": "tool", "name": "look", "content": text, "tool_call_id": f"sentinel{k}"}
            for k, text in enumerate(results)
        ]
        begun, whole = (chat._render(messages, [TOOL]) for messages in (asked, said))
        assert chat.initial(asked[0]["content"], asked[1]["content"], [TOOL]) == chat._encode(begun)
        last = whole.rindex(chat.form.closes, 0, whole.rindex(results[0]))  # where the last call ends
        end = whole.index(chat._end, last)
        reply = [7, chat.call_end_id]
        assert reply[1:] + chat.after(reply, Results([("look", text) for text in results])) == chat._encode(whole[end:])
        # and what the template wrote is read as these calls
        text = whole[: end + len(chat._end) * (chat.form.closes in chat.form.stops)]
        start = next(k for k, (a, b) in enumerate(zip(text + "\0", begun + "\1", strict=False)) if a != b)
        read = chat.form.read(chat.form.think(text[start:], False)[1])
        assert read == ("", [Call("look", one["function"]["arguments"]) for one in calls])


def test_the_other_templates_get_text_or_a_refusal():
    folder = Path(find_spec("trl").origin).parent / "chat_templates"
    known, counts = {name for name, _ in WITH_TOOLS}, {"text": 0, "refused": 0}
    for file in folder.glob("*.jinja"):
        if file.stem not in known and not file.stem.endswith("_training"):
            try:
                assert chat_of(file.stem).form.name == "text"
                counts["text"] += 1
            except RecipeError:
                counts["refused"] += 1
    assert counts["text"] >= counts["refused"]
