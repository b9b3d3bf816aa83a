"""Trajectories as data for supervised fine-tuning and for preference learning, in the formats of trl."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from ragen_verl.errors import RecipeError
from ragen_verl.rollout.reading import answer, messages
from ragen_verl.rollout.trajectory import Record

__all__ = ["preferences", "sft"]


_KEPT = ("env", "seed", "rollout_index", "return", "success")


def sft(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Chats in the format of trl's SFTTrainer: `{"messages": [{"role", "content"}, ...]}`.

    A trajectory gives one chat. Where every turn was a training row of its own it gives one for each turn, since a
    later prompt does not contain the earlier ones. A trajectory that failed or has no turn gives none.

    With tools the assistant's messages have `tool_calls`, results are messages of the role `tool`, and `tools` has the
    schemas, as TRL's trainers read them; a reply whose calls could not all be read stays text. A window of turns leaves
    calls as text as well.

    Args:
        records: trajectory records with their task prompts.

    Yields:
        The messages, and `env`, `seed`, `rollout_index`, `return` and `success` of the trajectory.

    Raises:
        RecipeError: a record does not contain what the model saw.
    """
    for record in records:
        if record["excluded"] or not record["turns"]:
            continue
        about = {name: record[name] for name in _KEPT}
        if not record["row_per_turn"] and (record["preamble"] or {}).get("tools"):
            yield {"messages": _with_calls(record), "tools": record["preamble"]["tools"], **about}
            continue
        if not record["row_per_turn"]:
            yield {"messages": messages(record), **about}
            continue
        for turn in record["turns"]:
            yield {"messages": [*messages(record, turn["turn"]), answer(turn)], **about}


def preferences(records: Iterable[Record], margin: float = 0.0) -> Iterator[dict[str, Any]]:
    """Pairs of the best and the worst trajectory of a group, in the format of trl's DPOTrainer and RewardTrainer.

    The trajectories of a group have the same environment, seed and step of a run, and start with the same messages. Of
    equal returns the lowest rollout index is taken. Trajectories that failed or have no turn are left out.

    Args:
        records: trajectory records with their task prompts.
        margin: the smallest difference of returns in a pair; equal returns give no pair.

    Yields:
        `prompt` (the messages up to the first response), `chosen` and `rejected` (all later ones), `margin` (the
        difference of returns), `return_chosen`, `return_rejected`, `env` and `seed`.

    Raises:
        RecipeError: a record does not contain what the model saw, or its turns were rows of their own: then no prompt
            contains the earlier messages, and the model never had the whole conversation.
    """
    groups: dict[tuple, list[Record]] = defaultdict(list)
    for record in records:
        if record["excluded"] or not record["turns"]:
            continue
        if record["row_per_turn"]:
            raise RecipeError(
                "These trajectories have a training row for every turn (ragen.rollout.context is not full), so that a "
                "pair of whole conversations is none that the model had: convert them to sft."
            )
        place = [record.get(name) for name in ("split", "step", "policy", "env", "seed")]
        opening = [one["content"] for one in messages(record, 1)]
        groups[(*place, *opening)].append(record)
    for members in groups.values():
        ranked = sorted(members, key=lambda one: (-one["return"], one["rollout_index"]))
        best = ranked[0]
        worst = next(one for one in ranked if one["return"] == ranked[-1]["return"])
        difference = best["return"] - worst["return"]
        if difference > 0 and difference >= margin:
            prompt = messages(best, 1)
            chosen, rejected = (messages(one)[len(prompt) :] for one in (best, worst))
            pair = {"prompt": prompt, "chosen": chosen, "rejected": rejected, "margin": difference}
            returns = {"return_chosen": best["return"], "return_rejected": worst["return"]}
            yield {**pair, **returns, "env": best["env"], "seed": best["seed"]}


def _with_calls(record: Record) -> list[dict[str, Any]]:
    """The messages of a trajectory with its calls as data, up to its last answer."""
    plain, found = messages(record), list[dict[str, Any]]()
    turns = record["turns"]
    first = len(plain) - 2 * len(turns)  # a system message, if any, then user and assistant in turn
    found += plain[: first + 1]
    for number, turn in enumerate(turns):
        user, reply = plain[first + 2 * number], plain[first + 2 * number + 1]
        calls = [call for call in turn["calls"] if call["name"] is not None]
        if number and found[-1]["role"] != "tool":
            found.append(user)
        if not calls or len(calls) < len(turn["calls"]):
            found.append(reply)
            continue
        written = [
            {"type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}} for call in calls
        ]
        found.append({"role": "assistant", "content": turn["reasoning"], "tool_calls": written})
        if number + 1 < len(turns):
            results = (call["result"] or f"This call was not made ({call['error']})." for call in calls)
            found += [
                {"role": "tool", "name": call["name"], "content": text}
                for call, text in zip(calls, results, strict=True)
            ]
    return found
