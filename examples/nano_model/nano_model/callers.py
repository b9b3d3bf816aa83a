"""A model that calls tools: scripted players of `Lockbox-v0` and `ToolWorld-v0`, and what such a model is trained on.

The players are of mixed quality, so that the model starts with valid calls and is seldom right:

* careful: looks into boxes that it has not seen until it finds the code, then opens the lock with it; follows the chain
  of tables from the person to the answer;
* hasty: looks once or twice and opens the lock with the code if it has seen it and otherwise with any; answers with the
  last name that it has read, often too early;
* wild: any call with fitting arguments; idle: says that it is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ragen_envs import tool_world
from ragen_envs.lockbox import Lockbox
from tokenizers import Tokenizer

from nano_model.build import Recipe, Stage
from nano_model.demonstrations import Sample, encode
from nano_model.episodes import scripted
from nano_model.players import Mix
from nano_model.train import TrainConfig
from nano_model.worlds import DEMONSTRATION_SEEDS, World
from ragen_verl.env import make
from ragen_verl.env.calls import called, said
from ragen_verl.env.tools import ToolEnv
from ragen_verl.rollout.protocols.tools import Tools

CHARACTERS = ("careful", "hasty", "wild", "idle")
ABLE = Mix({"careful": 0.9, "hasty": 0.05, "wild": 0.05, "idle": 0.0}, slips=0.0)
MIXED = Mix({"careful": 0.1, "hasty": 0.4, "wild": 0.45, "idle": 0.05})
WORLDS = (World("Lockbox", "Lockbox-v0", {"digits": 3}, 0.15), World("ToolWorld", "ToolWorld-v0", share=0.85))
PARTS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    '{"name": "',
    '", "arguments": {"',
    '": "',
    '"}}',
    "You may call these tools:\n",
    "Boxes:",
    "Code: ",
    "Empty.",
    "Wrong code.",
    "There are 6 persons.",
    "There is no ",
    " called ",
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


@dataclass
class Caller:
    """The player of one episode: called with the observation, it returns its next action."""

    env: ToolEnv
    mix: Mix
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.own = self._drawn()
        self.unseen, self.found = list(getattr(self.env, "names", ())), ""
        self.looks = int(self.rng.integers(1, 3))

    def __call__(self, state: str) -> str:
        """The next action."""
        kind = self.own if self.rng.random() < self.mix.loyalty else self._drawn()
        if kind == "idle":
            return said("I am done.")
        return self._box(state, kind) if isinstance(self.env, Lockbox) else self._table(kind)

    def _drawn(self) -> str:
        return CHARACTERS[self.rng.choice(len(CHARACTERS), p=[self.mix.shares[one] for one in CHARACTERS])]

    def _box(self, state: str, kind: str) -> str:
        self.found = match[1] if (match := _CODE.search(state)) else self.found
        at_random = kind == "wild" and self.rng.random() < 0.5
        if self.found and not at_random:
            return called("open", code=self.found)
        if kind == "careful" or (kind == "hasty" and self.looks > 0) or (kind == "wild" and self.rng.random() < 0.5):
            self.looks -= 1
            left = self.unseen if self.unseen and kind != "wild" else self.env.names
            box = left[int(self.rng.integers(len(left)))]
            self.unseen = [one for one in self.unseen if one != box]
            return called("look", box=box)
        return called("open", code="".join(str(digit) for digit in self.rng.integers(10, size=self.env.digits)))

    def _table(self, kind: str) -> str:
        if kind == "careful":
            return self.env.oracle()[0]
        if kind == "hasty" and self.rng.random() < 0.5:
            return called("answer", name=self.env.known[-1])
        schema = self.env.tools[int(self.rng.integers(len(self.env.tools)))]["function"]
        (argument,) = schema["parameters"]["required"]
        return called(schema["name"], **{argument: self.env.known[int(self.rng.integers(len(self.env.known)))]})


def slip(text: str, rng: np.random.Generator) -> str:
    """A response with a mistake: no end of the call, no quote, another tool."""
    wrong = (
        text.replace("</tool_call>", ""),
        text.replace('": "', '": ', 1),
        text.replace('", "arguments', 's", "arguments', 1),
    )
    return wrong[int(rng.integers(len(wrong)))]


def generate(tokenizer: Any, mix: Mix, count: int, seed: int | Sequence[int]) -> Iterator[Sample]:
    """`count` encoded demonstrations of these players; the same arguments give the same ones."""
    rng, rules = np.random.default_rng(seed), Tools(think=False)
    chat = rules.chat(tokenizer)
    envs = [make(world.env_id, **world.kwargs) for world in WORLDS]
    for _ in range(count):
        env: Any = envs[int(rng.choice(len(envs), p=[world.share for world in WORLDS]))]
        play, level = Caller(env, mix, rng), int(rng.integers(DEMONSTRATION_SEEDS, 2**31))

        def respond(state: str, play: Caller = play) -> str:
            text = rules.answer([play(state)])
            return slip(text, rng) if rng.random() < mix.slips else text

        yield encode(scripted(env, rules, chat, level, respond))


@dataclass(frozen=True)
class CallerRecipe(Recipe):
    """First mostly careful players, then all of them.

    What was tried on the way: two layers with 12,000 and 5,000 episodes, half of them in ToolWorld, solved 39 % of
    Lockbox and 1.6 % of ToolWorld at temperature 1, too little for groups of eight to learn from.
    """

    stages: tuple[Stage, ...] = (Stage(ABLE, 30_000, 0.0), Stage(MIXED, 3_000, 0.0))
    train: TrainConfig = field(default_factory=TrainConfig)
    threads: ClassVar[int] = 1
    files: ClassVar[tuple[str, ...]] = ("callers", "demonstrations", "episodes", "model", "tokenizer", "train")

    def words(self) -> list[str]:
        """Every word that deserves a token of its own; syllables of names often, so that they are merged first."""
        kinds = [*tool_world.KINDS, *tool_world.OTHERS]
        others = {"look", "open", "box", "code", "done", "answer", "name", "unknown"}
        syllables = [one for text in tool_world.SYLLABLES for one in (text, text.capitalize())]
        return sorted([*{*others, *kinds, *Lockbox(boxes=6).names}, *50 * syllables])

    def phrases(self) -> list[str]:
        """The parts of a call, the names of tools, and the fixed texts of prompts and results."""
        envs: list[Any] = [make(world.env_id, **world.kwargs) for world in WORLDS]
        found = {*PARTS, Tools(think=False).system_prompt, envs[0].instruction}
        found |= {json.dumps(one) for one in envs[0].tools}
        for seed in range(200):  # enough to see each tool with each kind of argument
            envs[1].reset(seed=seed)
            found |= {json.dumps(one) for one in envs[1].tools} | {one["function"]["name"] for one in envs[1].tools}
            found |= set(envs[1].instruction.split(envs[1].subject))
        return sorted(found)

    def samples(self, tokens: Any, stage: Stage, episodes: int, seed: tuple[int, ...]) -> Iterable[Sample]:
        """Demonstrations of a stage."""
        return generate(tokens, stage.mix, episodes, seed)

    def save_tokenizer(self, tokens: Tokenizer, folder: Path) -> None:
        """With a template that shows tools."""
        super().save_tokenizer(tokens, folder)
        file = folder / "tokenizer_config.json"
        settings = json.loads(file.read_text("utf-8")) | {"chat_template": TEMPLATE}
        file.write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
