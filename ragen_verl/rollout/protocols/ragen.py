"""RAGEN's answer format, arXiv 2504.20073: `<think> thoughts </think> <answer> action || action </answer>`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from ragen_verl.rollout.protocol import Parsed, Protocol, protocol

__all__ = ["TAGS", "Ragen"]

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
# Linear: runs of white space between the two tags do not overlap, so each is scanned a bounded number of times.
_THINK_TO_ANSWER = re.compile(r"</think>\s*<answer>")


@protocol("ragen")
class Ragen(Protocol):
    """`<think>..</think><answer>..</answer>`; with `think=False` `<answer>..</answer>` alone."""

    tags: ClassVar[tuple[str, ...]] = TAGS

    @property
    def prefill(self) -> str:
        """The first tag."""
        return "<think>" if self.think else "<answer>"

    @property
    def form(self) -> str:
        """The tags with their contents."""
        answer = "<answer> [your answer] </answer>"
        return f"<think> [your thoughts] </think> {answer}" if self.think else answer

    def parse(self, response_text: str) -> Parsed:
        """Read thoughts and actions.

        As in RAGEN, thoughts may contain anything, the first match counts, text after `</answer>` is ignored, and
        further tags inside thoughts or actions are removed. The prefill starts the text, so a match can start only
        there, and only the ends of the parts are searched.
        """
        body = response_text
        think = ""
        if self.think:
            joint = _THINK_TO_ANSWER.search(body)
            if joint is None:
                return Parsed(False, "", [])
            think, body = body[: joint.start()], body[joint.end() :]
        end = body.find("</answer>")
        if end < 0:
            return Parsed(False, "", [])
        return Parsed(True, _without_tags(think).strip(), self.split(_without_tags(body[:end])))

    def answer(self, actions: Sequence[str], thoughts: str = "") -> str:
        """The thoughts, if they are asked for, and the actions."""
        before = f"{thoughts}</think><answer>" if self.think else ""
        return f"{before}{self.joined(actions)}</answer>"


def _without_tags(text: str) -> str:
    """Remove tags, including those that appear when an inner tag is removed: `</ans<think>wer>`. Linear time."""
    kept: list[str] = []
    for sign in text:
        kept.append(sign)
        if sign == ">":
            tag = next((tag for tag in TAGS if "".join(kept[-len(tag) :]) == tag), "")
            del kept[len(kept) - len(tag) :]
    return "".join(kept)
