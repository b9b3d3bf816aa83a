"""A model that calls tools: scripted players of `Lockbox-v0`, and what such a model is trained on.

The players are of mixed quality, so that the model starts with valid calls and is right about a third of the time:

* careful: looks into boxes that it has not seen until it finds the code, then opens the lock with it;
* hasty: looks once or twice and then opens, with the code if it has seen it and otherwise with any;
* wild: any call with any fitting arguments; idle: says that it is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ragen_envs.lockbox import Lockbox
from tokenizers import Tokenizer
from transformers import Qwen2Config

from nano_model.build import Recipe, Stage
from nano_model.demonstrations import Sample, encode
from nano_model.episodes import scripted
from nano_model.players import Mix
from nano_model.train import TrainConfig
from ragen_verl.env.calls import called, said
from ragen_verl.rollout.protocols.tools import Tools

SHARES = {"careful": 0.1, "hasty": 0.4, "wild": 0.45, "idle": 0.05}
PARTS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    '{"name": "',
    '", "arguments": {"',
    '": "',
    '"}}',
    "Code: ",
    "Empty.",
    "Wrong code.",
    "I am done.",
)
TEMPLATE = (
    "{% set own = messages[0].content if messages[0].role == 'system' else '' %}"
    "{% if tools or own %}<|im_start|>system\n{{ own }}"
    "{% if tools %}{{ '\\n\\n' if own else '' }}You may call these tools:\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}"
    "<|im_end|>\n{% endif %}"
    "{% for message in messages if message.role != 'system' %}"
    "{% if message.role == 'tool' %}"
    "{% if loop.previtem.role != 'tool' %}<|im_start|>user\n{% endif %}"
    "<tool_response>\n{{ message.content }}\n</tool_response>"
    "{{ '\n' if loop.nextitem is defined and loop.nextitem.role == 'tool' else '<|im_end|>\n' }}"
    "{% else %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "{{ '\n' if message.content or not loop.first else '' }}<tool_call>\n{\"name\": \"{{ call.function.name }}\", "
    '"arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Results are a user's message, as in Qwen 2.5; the tools stand behind the system prompt."""
_CODE = re.compile(r"Code: (\d+)")


def player(env: Lockbox, rng: np.random.Generator, shares: dict[str, float]) -> Callable[[str], str]:
    """The player of one episode: the observation to the next action."""
    names = list(shares)
    own = names[rng.choice(len(names), p=list(shares.values()))]
    unseen, found, looks = list(env.names), "", int(rng.integers(1, 3))

    def act(state: str) -> str:
        nonlocal found, looks
        found = match[1] if (match := _CODE.search(state)) else found
        kind = own if rng.random() < 0.9 else names[rng.choice(len(names), p=list(shares.values()))]
        if kind == "idle":
            return said("I am done.")
        wild = kind == "wild" and rng.random() < 0.5
        if found and not wild:
            return called("open", code=found)
        if kind == "careful" or (kind == "hasty" and looks > 0) or (kind == "wild" and rng.random() < 0.5):
            looks -= 1
            left = unseen if unseen and kind != "wild" else list(env.names)
            box = left[int(rng.integers(len(left)))]
            if box in unseen:
                unseen.remove(box)
            return called("look", box=box)
        return called("open", code="".join(str(digit) for digit in rng.integers(10, size=env.digits)))

    return act


def slip(text: str, rng: np.random.Generator) -> str:
    """A response with a mistake: no end of the call, no quote, another tool."""
    wrong = (text.replace("</tool_call>", ""), text.replace('": "', '": ', 1), text.replace("look", "box", 1))
    return wrong[int(rng.integers(len(wrong)))]


def generate(tokenizer: Any, mix: Mix, count: int, seed: int | Sequence[int]) -> Iterator[Sample]:
    """`count` encoded demonstrations of these players; the same arguments give the same ones."""
    rng, env, rules = np.random.default_rng(seed), Lockbox(), Tools(think=False)
    chat = rules.chat(tokenizer)
    for _ in range(count):
        play = player(env, rng, dict(mix.shares))

        def respond(state: str, play: Callable[[str], str] = play) -> str:
            text = rules.answer([play(state)])
            return slip(text, rng) if rng.random() < mix.slips else text

        yield encode(scripted(env, rules, chat, int(rng.integers(1_000_000, 2**31)), respond))


@dataclass(frozen=True)
class CallerRecipe(Recipe):
    """Two layers, half the parameters of the other nano models; first careful players alone, then all of them."""

    stages: tuple[Stage, ...] = (
        Stage(Mix({"careful": 1.0}, slips=0.0), 10_000, 0.0),
        Stage(Mix(SHARES), 12_000, 0.0),
    )
    train: TrainConfig = field(default_factory=lambda: TrainConfig(batch_tokens=4096))
    files: ClassVar[tuple[str, ...]] = ("callers", "demonstrations", "episodes", "model", "tokenizer", "train")

    def words(self) -> list[str]:
        """Every word that deserves a token of its own."""
        return sorted({"look", "open", "box", "code", "done", *Lockbox(boxes=6).names})

    def phrases(self) -> list[str]:
        """The parts of a call, and the fixed texts of prompts and results."""
        env, rules = Lockbox(), Tools(think=False)
        tools = [json.dumps(one) for one in env.tools]
        return [*PARTS, rules.system_prompt, "You may call these tools:\n", *tools, env.instruction]

    def samples(self, tokens: Any, stage: Stage, episodes: int, seed: tuple[int, ...]) -> Iterable[Sample]:
        """Demonstrations of a stage."""
        return generate(tokens, stage.mix, episodes, seed)

    def config(self, tokens: Tokenizer) -> Qwen2Config:
        """Two layers."""
        return Qwen2Config(**{**super().config(tokens).to_dict(), "num_hidden_layers": 2, "layer_types": None})

    def save_tokenizer(self, tokens: Tokenizer, folder: Path) -> None:
        """With a template that shows tools."""
        super().save_tokenizer(tokens, folder)
        file = folder / "tokenizer_config.json"
        settings = json.loads(file.read_text("utf-8")) | {"chat_template": TEMPLATE}
        file.write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
