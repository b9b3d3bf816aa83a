"""Small chat templates with tools, in the forms of model families, and tokenizers for them built on the spot."""

from __future__ import annotations

import re
from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

_TOOLS = "{% if tools %}You have tools:{% for t in tools %}\n{{ t | tojson }}{% endfor %}{% endif %}"
_HEAD = "{{ messages[0].content if messages[0].role == 'system' else '' }}"
_ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
HERMES = (
    f"<|im_start|>system\n{_HEAD}{_TOOLS}<|im_end|>\n"
    "{% for m in messages if m.role != 'system' %}"
    "{% if m.role == 'tool' %}"
    "{% if loop.previtem.role != 'tool' %}<|im_start|>user{% endif %}"
    "\n<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '\n' if m.content or not loop.first else '' }}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    f"<|im_end|>\n{{% endif %}}{{% endfor %}}{_ASK}"
)
THINKS = HERMES.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" + _ASK
)  # knows no tools
COUNTS = HERMES.replace(
    "<|im_start|>user{% endif %}",
    "<|im_start|>user {{ messages | map(attribute='tool_calls', default=[]) | list | tojson | length }}{% endif %}",
)  # what follows calls depends on their number

_CONTROL = re.compile(r"<\|?/?[A-Za-z_|\"]+\|?>|\[/?[A-Z_]+\]|\[gMASK\]")
_USUAL = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<turn|>", "<|end|>", "<|return|>", "<|eot|>")
_TEXT = "One of three boxes holds a code. Open the lock with it. name arguments look open user assistant"


@cache
def tokenizer(template: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer in which everything that looks like a control token of the template is one."""
    special = sorted({*_CONTROL.findall(template), *_USUAL})
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340 + len(special),
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator([_TEXT] * 3, trainer)
    built = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|endoftext|>", bos_token="<|endoftext|>")
    built.chat_template = template
    return built
