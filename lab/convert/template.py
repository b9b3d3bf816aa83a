"""Prompt an exported model as in training: its chat template writes the text that responses begin with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ragen_verl.config import RagenConfig
from ragen_verl.rollout.chat import ChatTokens

__all__ = ["as_trained", "with_beginning"]


def as_trained(config: Mapping[str, Any], out: Path) -> None:
    """Write the template of a run's prompts, and the ids that end a response, into a Hugging Face folder.

    Args:
        config: the run's whole configuration.
        out: the folder, with a tokenizer.

    Raises:
        RecipeError: the configuration is of another version, or the template cannot be continued.
    """
    from transformers import AutoTokenizer

    whole = OmegaConf.create(dict(config))
    tokenizer = AutoTokenizer.from_pretrained(out)
    tokenizer.chat_template = whole.actor_rollout_ref.model.get("custom_chat_template") or tokenizer.chat_template
    arguments = OmegaConf.to_container(OmegaConf.select(whole, "data.apply_chat_template_kwargs") or OmegaConf.create())
    chat = ChatTokens(tokenizer, RagenConfig.from_omegaconf(whole).rollout.chat_protocol(), arguments)
    asked = [{"role": "user", "content": "word"}]
    rendered = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True, **arguments)
    begun = tokenizer.decode(chat.initial("", "word"), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    template = with_beginning(tokenizer.chat_template, begun.removeprefix(rendered), arguments)
    (out / "chat_template.jinja").write_text(template, "utf-8")
    if "chat_template" in (known := _read(out / "tokenizer_config.json")):
        _write(out / "tokenizer_config.json", {**known, "chat_template": template})
    known = _read(out / "generation_config.json")
    _write(out / "generation_config.json", {**known, "eos_token_id": _ids(known.get("eos_token_id"), chat.eos_ids)})
    os.umask(mask := os.umask(0))
    for file in out.iterdir():
        if file.is_file():
            file.chmod(0o666 & ~mask)  # what saves tensors makes files that only their owner can read


def with_beginning(template: str, beginning: str, arguments: Mapping[str, Any]) -> str:
    """A chat template that fixes its arguments and ends every prompt with the beginning of the response."""
    fixed = "".join(
        f"{{% set {name} = {'none' if value is None else json.dumps(value)} %}}" for name, value in arguments.items()
    )
    end = f"{{% if add_generation_prompt %}}{{{{ {json.dumps(beginning)} }}}}{{% endif %}}" if beginning else ""
    return fixed + template.removesuffix("\n") + end


def _ids(known: Any, trained: tuple[int, ...]) -> list[int]:
    before = known if isinstance(known, list) else [] if known is None else [known]
    return [*trained, *(one for one in before if one not in trained)]


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text("utf-8")) if file.is_file() else {}


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
