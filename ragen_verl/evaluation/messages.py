"""A conversation as messages instead of token ids, for policies behind a chat API.

The rollout code builds a conversation as one growing list and only ever joins, slices and counts its entries. Here an
entry is a whole message, so the same code plays with an engine that has no ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragen_verl.rollout.chat import Chat
from ragen_verl.rollout.protocol import Protocol


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: str
    content: str


class MessageChat(Chat):
    """What stands around the responses: system and user messages.

    A chat API cannot be made to begin with a tag, so a response is read as if it had been: where it opens with the tag
    itself, that is taken off.

    Args:
        protocol: gives the tag that every response starts with in training.
    """

    def __init__(self, protocol: Protocol) -> None:
        self._prefill = protocol.prefill

    def initial(self, system: str, user: str) -> list[Message]:
        """The opening of a conversation."""
        return [Message("system", system)] * bool(system) + [Message("user", user)]

    def turn(self, closed: bool, user: str) -> list[Message]:
        """What stands between two responses."""
        return [Message("user", user)]

    def closed(self, response: Sequence[Message]) -> bool:
        """Whether the response ended by itself; messages always do."""
        return True

    def decode(self, response: Sequence[Message]) -> str:
        """The text of a response without the tag it was asked to begin with."""
        return "".join(one.content for one in response).lstrip().removeprefix(self._prefill)

    def prefix(self, response: Sequence[Message]) -> str:
        """What `decode` takes off a response."""
        text = "".join(one.content for one in response)
        return text[: len(text) - len(self.decode(response))]
