"""A chat as the ids of a rollout, so that supervised training sees the same ids as a model that plays.

A template rendered as a whole may be split into other tokens than a rollout, which appends a sampled response to a
rendered prompt: a byte-pair vocabulary would join the `>` of the prefill `<think>` with the text after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragen_verl.rollout.chat import ChatTokens

__all__ = ["answer_ids", "encode"]


def encode(
    chat: ChatTokens, messages: Sequence[Mapping[str, str]], last_only: bool = False
) -> tuple[list[int], list[int]]:
    """The ids of a chat, and a mask of those that a model would sample.

    Args:
        chat: made with the protocol whose prefill the answers begin with.
        messages: perhaps a system message; then user and assistant in turn, the assistant last.
        last_only: whether only the last answer counts.

    Returns:
        The ids, and a mask of the same length: 1 for an answer's ids after the prefill, with its end of turn, and 0
        for all other ids.
    """
    rest = [one["content"] for one in messages if one["role"] != "system"]
    system = messages[0]["content"] if messages[0]["role"] == "system" else ""
    ids: list[int] = []
    mask: list[int] = []
    for place, (user, reply) in enumerate(zip(rest[::2], rest[1::2], strict=True)):
        prompt = chat.turn(True, user) if place else chat.initial(system, user)
        said = answer_ids(chat, reply)
        counts = int(not last_only or 2 * place + 2 == len(rest))
        ids += prompt + said
        mask += [0] * len(prompt) + [counts] * len(said)
    return ids, mask


def answer_ids(chat: ChatTokens, reply: str) -> list[int]:
    """The ids that a model would have to sample for an answer, which begins with the prefill."""
    text = reply.removeprefix(chat.prefill([]).rstrip())
    return [*chat.tokenizer.encode(text, add_special_tokens=False), chat.end_of_turn_id]
