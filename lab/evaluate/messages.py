"""A conversation as messages instead of token ids, for policies behind a chat API.

The rollout code builds a conversation as one growing list, and only joins, slices and counts its entries. Here an entry
is a whole message, so the same code works with an engine that has no token ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragen_verl.rollout.chat import Chat
from ragen_verl.rollout.protocol import Protocol

__all__ = ["Message", "MessageChat", "written"]


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: str
    content: str


def written(text: str, thoughts: str, protocol: Protocol) -> str:
    """An answer of a chat API in the form of the protocol, as the next prompt of the conversation shows it.

    A chat API cannot be made to begin with a tag, and some give thoughts in a field of their own, or none.

    Args:
        text, thoughts: as the server gives them.
        protocol: where its tags have `</think>`, the next one opens the answer; others get the text as it is.
    """
    if not protocol.think or "</think>" not in protocol.tags[:-1]:
        return text
    if thoughts and not text.strip():  # a server that takes the whole answer for thoughts
        text, thoughts = thoughts, ""
    if "</think>" in text:  # a template may have written the tag that opens them
        return text if text.lstrip().startswith("<think>") else f"<think>{text}"
    before, tag, answer = text.partition(protocol.tags[protocol.tags.index("</think>") + 1])
    if not tag:
        return text
    before = "\n".join(part for part in (thoughts, before.strip().removeprefix("<think>").strip()) if part)
    return f"<think>{before}</think>{tag}{answer}"


class MessageChat(Chat):
    """The messages around the responses: those of the system and the user.

    In training every response starts with a tag. A chat API cannot be made to begin with it, so a tag at the start of a
    response is removed and the response is read as if the tag had been given.

    Args:
        protocol: has the tag with which every response starts in training.
    """

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._prefill = protocol.prefill

    def initial(self, system: str, user: str, tools: Sequence[Mapping[str, Any]] = ()) -> list[Message]:
        """The opening of a conversation; the system message describes tools, which are called in the form for text."""
        if tools:
            from ragen_verl.rollout.tools.form import listing

            told = listing(tools, self._protocol.max_actions_per_turn)
            system = "\n\n".join(part for part in (system, told) if part)
        return [Message("system", system)] * bool(system) + [Message("user", user)]

    def turn(self, closed: bool, user: str) -> list[Message]:
        """The messages between two responses."""
        return [Message("user", user)]

    def closed(self, response: Sequence[Message]) -> bool:
        """Whether the response ended by itself; messages always do."""
        return True

    def decode(self, response: Sequence[Message]) -> str:
        """The text of a response without the tag at its start."""
        return "".join(one.content for one in response).lstrip().removeprefix(self._prefill)

    def prefill(self, response: Sequence[Message]) -> str:
        """The part of a response that `decode` removes."""
        text = "".join(one.content for one in response)
        return text[: len(text) - len(self.decode(response))]
