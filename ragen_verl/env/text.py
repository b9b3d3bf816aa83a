"""Common parts of free-text environments: a space of any text, and text that UTF-8 accepts."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from gymnasium.spaces import Text

from ragen_verl.env.core import Env

__all__ = ["AnyText", "FreeTextEnv", "encodable"]


class AnyText(Text):
    """Texts of any characters, since names and passages are not known in advance. Samples are printable."""

    def contains(self, x: Any) -> bool:
        """Tell whether `x` is a text within the length limit."""
        return isinstance(x, str) and len(x) <= self.max_length


class FreeTextEnv(Env):
    """An environment whose actions and observations are any text."""

    @cached_property
    def action_space(self) -> AnyText:  # type: ignore[override]
        """Any text; `step` also takes longer texts."""
        return AnyText(10_000, min_length=0, charset=self.charset)

    @cached_property
    def observation_space(self) -> AnyText:  # type: ignore[override]
        """Any text."""
        return AnyText(10**7, min_length=0, charset=self.charset)


def encodable(text: str) -> str:
    """Return `text` with "?" for lone surrogates, which neither UTF-8 nor a tokenizer accepts."""
    return text.encode("utf-8", "replace").decode()
