r"""Answers as mathematics writes them: `<think> thoughts </think> \boxed{action}`.

Models that were trained on mathematics put their results into `\boxed{}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ragen_verl.rollout.protocol import Parsed, Protocol, protocol

__all__ = ["Boxed"]

_BOX = "\\boxed{"


@protocol("boxed")
class Boxed(Protocol):
    r"""`<think>..</think> \boxed{..}`; with `think=False` `\boxed{..}` alone."""

    tags: ClassVar[tuple[str, ...]] = ("<think>", "</think>", _BOX, "}")

    @property
    def prefill(self) -> str:
        """The tag of the thoughts, or the beginning of the box."""
        return "<think>" if self.think else _BOX

    @property
    def form(self) -> str:
        """The box, behind the thoughts if they are asked for."""
        box = f"{_BOX}[your answer]}}"
        return f"<think> [your thoughts] </think> {box}" if self.think else box

    def parse(self, response_text: str) -> Parsed:
        r"""Read the last box behind the last `</think>`; braces inside it have to match, as in `\boxed{\frac{1}{2}}`.

        Boxes inside the thoughts do not count, and neither does other text around the box.
        """
        thoughts, rest = "", self.prefill + response_text
        if self.think:
            thoughts, closing, rest = response_text.rpartition("</think>")
            if not closing:
                return Parsed(False, "", [])
        start = rest.rfind(_BOX)
        inside = _balanced(rest[start + len(_BOX) :]) if start >= 0 else None
        if inside is None:
            return Parsed(False, "", [])
        return Parsed(True, thoughts.strip(), self.split(inside))

    def answer(self, actions: Sequence[str], thoughts: str = "") -> str:
        """The thoughts, if they are asked for, and the actions in one box."""
        before = f"{thoughts}</think> {_BOX}" if self.think else ""
        return f"{before}{self.joined(actions)}}}"


def _balanced(text: str) -> str | None:
    """The text before the brace that closes more than was opened; None where there is none."""
    depth = 1
    for place, sign in enumerate(text):
        depth += (sign == "{") - (sign == "}")
        if not depth:
            return text[:place]
    return None
