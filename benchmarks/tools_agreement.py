"""Do others agree? Token ids against the package renderers, and calls as they are read against vLLM's parsers.

    python benchmarks/tools_agreement.py [--conversations 2000] [--calls 500] [--write]

It needs `pip install --no-deps trl==1.16.0 renderers==0.1.12 prime-pydantic-config==0.3.0.dev83`, and vLLM for its
parsers; without one of the two the other is compared. Vocabularies are small ones that are made on the spot, with every
control token of a template. `--write` saves benchmarks/results/tools_agreement.json.

Ids: a random opening (system, user, tools), and random results after one to three calls, with blanks, line breaks,
quotes and tags in them: ours against `render_ids` and `bridge_to_next_turn`, for each family that both know.
Calls: random names and arguments, written in each wire form; a disagreement is listed with its first example.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "helpers")]

from tool_templates import tokenizer  # noqa: E402

from ragen_verl.rollout.protocols.tools import Results, Tools  # noqa: E402
from ragen_verl.rollout.tools.form import FORMS, Call  # noqa: E402

FAMILIES = {
    "qwen3": "qwen3",
    "qwen3_vl": "qwen3-vl",
    "qwen3_5_think": "qwen3.5",
    "qwen3_6": "qwen3.6",
    "qwen3_8": "qwen3.8",
    "nemotron_3_nano": "nemotron-3",
    "nemotron_3_ultra": "nemotron-3-ultra",
    "nemotron_3_5_lightning": "nemotron-3.5",
    "glm4moe": "glm-4.5",
    "gemma4": "gemma4",
    "llama3_1": "llama-3",
}
"""trl's chat template -> the renderer of the same family; the one of gpt-oss has a vocabulary of its own."""
PARSERS = {
    "hermes": ("hermes", "qwen3"),
    "qwen_xml": ("qwen3_coder", "qwen3_5_think"),
    "glm": ("glm45", "glm4moe"),
    "llama": ("llama3_json", "llama3_1"),
    "lfm": ("lfm2", "lfm2_v2"),
    "gemma": ("gemma4", "gemma4"),
    "muse": ("muse_glimmer", "muse_glimmer"),
}
"""Our wire form -> vLLM's parser, and trl's template with its control tokens; for harmony none of vLLM's reads text."""
ASKED_FOR = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<bos>", "<eos>", "<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>"),
    *("<|image>", "<|image|>", "<image|>"),
)
PIECES = ("red", "12", "the code", "is", "-3.5", '"quoted"', "it's", "a\nline", "{x}", "<b>", "ü", "  ", "[1, 2]")
HARD = ("\\", "}}", "</tool_call>", "</parameter>", "</arg_value>", '<|"|>', "')]", "\t", "true", "None", "&lt;", "\n")
"""What only arguments have: ends of calls and of texts in the wire forms."""


def words(rng: random.Random, pieces: Sequence[str] = PIECES) -> str:
    """A text that begins and ends with a word: templates may cut blanks there."""
    return " ".join([rng.choice("abc"), *rng.choices(pieces, k=rng.randrange(6)), rng.choice("xyz")])


def vocabulary(template: str) -> Any:
    """A tokenizer with one of trl's chat templates; a comment adds control tokens that renderers ask for."""
    text = (Path(str(files("trl"))) / "chat_templates" / f"{template}.jinja").read_text("utf-8")
    made = tokenizer(f"{text}{{# {' '.join(ASKED_FOR)} #}}")
    made.bos_token = {"gemma4": "<bos>", "llama3_1": "<|begin_of_text|>"}.get(template, made.bos_token)
    return made


def tool(name: str, rng: random.Random) -> dict[str, Any]:
    """A function with a text, a number and a list."""
    kinds = {"box": {"type": "string"}, "count": {"type": "integer"}, "names": {"type": "array"}}
    properties = {key: {**kind, "description": words(rng)} for key, kind in kinds.items()}
    parameters = {"type": "object", "properties": properties, "required": ["box"]}
    return {"type": "function", "function": {"name": name, "description": words(rng), "parameters": parameters}}


def ids(template: str, family: str, count: int) -> dict[str, Any]:
    """How many of `count` random conversations get the same ids, and the first that does not."""
    from renderers.base import RENDERER_REGISTRY, _populate_registry  # classes that take a tokenizer

    _populate_registry()
    rng, found = random.Random(template), Counter()
    tokens = vocabulary(template)
    chat, renderer = Tools(think=False).chat(tokens), RENDERER_REGISTRY[family](tokens)
    example = ""
    for _ in range(count):
        tools, system, user = [tool("look", rng)], words(rng), words(rng)
        said = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        opening = renderer.render_ids(said, tools=tools, add_generation_prompt=True)
        mine = chat.initial(system, user, tools)
        found["opening"] += opening == mine
        if opening != mine and not example:
            example = f"ours {tokens.decode(mine)!r}, theirs {tokens.decode(opening)!r}"
        number = rng.randrange(1, 4) if chat.several else 1
        calls, results = [Call("look", {"box": words(rng)}) for _ in range(number)], [words(rng) for _ in range(number)]
        reply = [*tokens.encode(chat.form.write(calls), add_special_tokens=False), chat.call_end_id]
        told = [
            {"role": "tool", "name": "look", "content": text, "tool_call_id": f"call_{place}"}
            for place, text in enumerate(results)
        ]
        # Gemma 4 is stopped by the token that begins the results; here calls end a reply, and that token comes after it
        sampled = [*reply, *tokens.convert_tokens_to_ids(["<|tool_response>"] * (template == "gemma4"))]
        bridged = renderer.bridge_to_next_turn(mine, sampled, told, tools=tools)
        ours = [*mine, *reply, *chat.after(reply, Results([("look", text) for text in results]))]
        same = bridged is not None and list(bridged.token_ids) == ours
        found["results"] += same
        if not same and not example:
            theirs = "nothing" if bridged is None else tokens.decode(list(bridged.token_ids)[len(mine) + len(reply) :])
            example = f"ours {tokens.decode(ours[len(mine) + len(reply) :])!r}, theirs {theirs!r}"
    return {"conversations": count, "opening": found["opening"], "results": found["results"], "example": example}


def value(rng: random.Random, key: str) -> Any:
    """An argument that fits `tool`; one of four texts has what ends calls."""
    if key == "count":
        return rng.randrange(-1000, 1000)
    pieces = (*PIECES, *HARD) if rng.random() < 0.25 else PIECES
    return [words(rng, pieces) for _ in range(rng.randrange(3))] if key == "names" else words(rng, pieces)


def calls(form: str, parser: str, template: str, count: int) -> dict[str, Any]:
    """How many of `count` well-formed replies are read alike, and the first of each kind that is not."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    from ragen_verl.env.tools import _typed

    rng, wire = random.Random(form), FORMS[form]()
    schema = tool("look", random.Random(0))
    request = ChatCompletionRequest.model_validate(
        {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": [schema]}
    )
    tokens = vocabulary(template)
    same, other = 0, dict[str, dict[str, Any]]()
    for _ in range(count):
        keys = ["box", *(key for key in ("count", "names") if rng.random() < 0.5)]
        written = [Call("look", {key: value(rng, key) for key in keys}) for _ in range(rng.randrange(1, 3))]
        written = written if wire.several else written[:1]
        text = wire.write(written)
        ours = [
            (one.name, _typed(one.arguments, schema["function"]["parameters"])) if isinstance(one, Call) else one.why
            for one in wire.read(text)[1]
        ]
        try:
            built = ToolParserManager.get_tool_parser(parser)(tokens, request.tools)
            read = built.extract_tool_calls(text, request)
            theirs: Any = [(one.function.name, json.loads(one.function.arguments)) for one in read.tool_calls]
        except Exception as error:
            theirs = f"{type(error).__name__}: {error}"
        right = [(one.name, one.arguments) for one in written]
        if ours == theirs == right:
            same += 1
            continue
        kind = "vLLM reads something else" if ours == right else "we read something else"
        kind = "both read something else" if right not in (ours, theirs) else kind
        seen = other.setdefault(kind, {"count": 0, "text": text, "ours": ours, "vLLM": theirs})
        seen["count"] += 1
    return {"replies": count, "same": same, "other": other}


def main() -> None:
    """Compare, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=2000, help="of each family")
    parser.add_argument("--calls", type=int, default=500, help="replies of each wire form")
    parser.add_argument("--write", action="store_true", help="save the result")
    given = parser.parse_args()
    found: dict[str, Any] = {"ids": {}, "calls": {}}
    for template, family in FAMILIES.items() if find_spec("renderers") else ():
        found["ids"][template] = one = ids(template, family, given.conversations)
        alike = f"{one['opening']}, results {one['results']}"
        print(f"{template}: of {one['conversations']} openings {alike} {one['example']}")
    for form, (name, template) in PARSERS.items() if find_spec("vllm") else ():
        found["calls"][form] = read = calls(form, name, template, given.calls)
        print(f"{form} and {name}: {read['same']} of {read['replies']} alike {json.dumps(read['other'])[:1000]}")
    if given.write:
        (ROOT / "benchmarks" / "results" / "tools_agreement.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
