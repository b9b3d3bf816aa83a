"""`chat`: an environment asks a model behind an OpenAI-compatible server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ragen_envs.common.http import post_json

__all__ = ["api_key", "chat"]


def api_key() -> str:
    """The key of the environment variable OPENAI_API_KEY, "" without."""
    return os.environ.get("OPENAI_API_KEY", "")


def chat(
    url: str, model: str, messages: Sequence[dict[str, str]], *, timeout: float, retries: int, token: str, **more: Any
) -> str:
    """Return a model's answer to a conversation, asked at temperature 0; "" where its message has no text.

    Args:
        url: the server's base address, such as "http://localhost:8000/v1".
        model: its name there.
        messages: with `role` and `content`.
        timeout, retries, token: as `post_json` takes them.
        more: further fields of the request.

    Raises:
        ConnectionError: the server gives no usable answer.
    """
    address = f"{url.rstrip('/')}/chat/completions"
    body = {"model": model, "messages": list(messages), "temperature": 0, **more}
    answer = post_json(address, body, timeout=timeout, retries=retries, token=token)
    try:
        said = answer["choices"][0]["message"]["content"] or ""
    except (KeyError, IndexError, TypeError) as error:
        raise ConnectionError(f"{address} does not answer in the format of a chat endpoint ({error!r}).") from error
    if not isinstance(said, str):
        raise ConnectionError(f"{address} answers with {type(said).__name__} instead of text.")
    return said
