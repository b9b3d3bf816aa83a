"""For the rollout's tests: tokenizers built on the spot, a scripted engine, an environment that fails on order."""

from __future__ import annotations

import time
from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ragen_verl.rollout.episode import Generation

QWEN = (
    "{%- if messages[0].role != 'system' %}<|im_start|>system\nYou are a toy.<|im_end|>\n{% endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
# No system role, roles must alternate, the assistant is called model.
GEMMA = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
# Leaves thoughts out of earlier replies, as Qwen3's and DeepSeek-R1's do.
STRIPS_THOUGHTS = QWEN.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
# Opens the thoughts in the generation prompt and shows none of them later.
OPENS_THOUGHTS = STRIPS_THOUGHTS.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
# Shows an empty thought with a reply that is the last message, and opens with one if thinking is off, as Qwen3's does.
EMPTY_THOUGHTS = STRIPS_THOUGHTS.replace(
    "m.role }}\n", "m.role }}\n{{ '<think>\n\n</think>\n\n' if m.role == 'assistant' and loop.last else '' }}"
).replace("assistant\n{% endif", "assistant\n{{ '<think>\n\n</think>\n\n' if not enable_thinking else '' }}{% endif")
# Opens the thoughts in the generation prompt and shows an empty one later, as Nemotron's does.
CLOSES_THOUGHTS = STRIPS_THOUGHTS.replace(
    "m.role }}\n", "m.role }}\n{{ '<think></think>' if m.role == 'assistant' else '' }}"
).replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
# Leaves the head of a reply to the model, as gpt-oss's does.
NAMES_CHANNEL = QWEN.replace(
    "\n{{ m.content", "{{ '(final)' if m.role == 'assistant' else '' }}\n{{ m.content"
).replace("assistant\n{% endif", "assistant{% endif")
# Shows only the last two messages.
FORGETS = QWEN.replace("for m in messages", "for m in messages[-2:]")
# Marks the newest user message, so earlier ones are rewritten.
MARKS_LAST = QWEN.replace("{{ m.content }}", "{{ m.content }}{{ ' (last)' if loop.revindex == 1 else '' }}")
# Ends the message before the newest one differently: the delta depends on the place.
COUNTS = QWEN.replace("{{ m.role }}\n", "{{ m.role }} {{ loop.index }}\n")
NO_END = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "

SPECIAL = {
    "qwen": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "llama": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "gemma": ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"],
}
EOS = {"qwen": "<|im_end|>", "llama": "<|end_of_text|>", "gemma": "<eos>"}
TEMPLATES = {"qwen": QWEN, "llama": LLAMA3, "gemma": GEMMA}
TEXT = "<think> go to the goal </think> <answer> Up || Down </answer>\nTurn 2: State:\n#_P\nReward: system user"


@cache
def tokenizer(family: str, template: str | None = None) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with a family's special tokens and template. Shared: do not change it."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=SPECIAL[family],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator([TEXT] * 3, trainer)
    built = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=EOS[family],
        bos_token=None if family == "qwen" else SPECIAL[family][0],
        pad_token=SPECIAL[family][0],
        additional_special_tokens=SPECIAL[family],
    )
    built.chat_template = TEMPLATES[family] if template is None else template
    return built


class Engine:
    """Says what its script says, whatever it is asked, and remembers every list of ids it saw and made."""

    def __init__(self, script: list, log_probs: bool = True) -> None:
        self.script, self.log_probs = list(script), log_probs
        self.saw: list[list[int]] = []
        self.made: list[list[int]] = []

    async def __call__(self, ids: list[int], max_tokens: int) -> Generation:
        self.saw.append(list(ids))
        said = self.script[min(len(self.made), len(self.script) - 1)]
        if isinstance(said, BaseException):
            raise said
        made = list(said)[:max_tokens]
        self.made.append(made)
        return Generation(made, [-0.5 - i / 100 for i in range(len(made))] if self.log_probs else None)


class Walk:
    """Go right to the goal. Arguments choose what goes wrong.

    Args:
        goal: steps to the right that solve it; reaching it ends the episode unless `silent`.
        fail: method that raises: reset, step, close.
        hang: method that sleeps for `seconds`.
        result: what every step returns, in place of the right thing.
    """

    instruction = "Walk to G."
    symbols = {"P": "you", "G": "goal"}  # noqa: RUF012
    actions: tuple[str, ...] | None = ("Left", "Right")
    max_actions = 10

    def __init__(self, goal=3, fail="", hang="", seconds=0.0, silent=False, truncate=False, pit=None, result=None):
        self.goal, self.fail, self.hang, self.seconds = goal, fail, hang, seconds
        self.silent, self.truncate, self.pit, self.result = silent, truncate, pit, result
        self.place, self.closed, self.log = 0, 0, []

    def _happen(self, name):
        if self.hang == name:
            time.sleep(self.seconds)
        if self.fail == name:
            raise ValueError(f"{name} is broken")

    def reset(self, *, seed=None, options=None):
        self._happen("reset")
        self.log.append((seed, options))
        return self.render(), {}

    def render(self):
        return f"P at {self.place}, G at {self.goal}"

    def step(self, action):
        self._happen("step")
        if self.result is not None:
            return self.result
        self.log.append(action)
        name = action.strip().lower()
        moved = {"left": -1, "right": 1}.get(name, 0)
        self.place += moved
        success, fell = self.place == self.goal, self.place == self.pit
        info = {
            "success": success,
            "action_is_valid": moved != 0,
            "action_is_effective": moved != 0,
            "place": self.place,
        }
        end = (success and not self.silent) or fell
        return self.render(), 10.9 if success else -0.1, end and not self.truncate, end and self.truncate, info

    def close(self):
        self.closed += 1
        self._happen("close")


def say(tokenizer, text: str, end: str | None = None) -> list[int]:
    """Ids of a reply as the tokenizer would write it, with its family's end of turn unless `end` is ""."""
    close = tokenizer.convert_tokens_to_ids(end_of_turn(tokenizer)) if end is None else None
    return tokenizer.encode(text, add_special_tokens=False) + ([close] if end is None else [])


def end_of_turn(tokenizer) -> str:
    for token in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>"):
        if token in tokenizer.get_vocab():
            return token
    raise KeyError("no end-of-turn token")


def spell(tokenizer, text: str) -> list[int]:
    """Ids of a text one character at a time: decodes to the same text, but no tokenizer would write it so."""
    return [index for char in text for index in tokenizer.encode(char, add_special_tokens=False)]


def wait_for(true, seconds: float = 3.0) -> None:
    """Until `true()` is."""
    end = time.perf_counter() + seconds
    while not true():
        assert time.perf_counter() < end
        time.sleep(0.01)
