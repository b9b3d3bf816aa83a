"""Trajectories as data for supervised fine-tuning and for preference learning, in the formats of trl."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ragen_verl.errors import RecipeError
from ragen_verl.rollout.record import answer, messages

Record = Mapping[str, Any]

_KEPT = ("env", "seed", "rollout_index", "return", "success")


def sft(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Chats as trl's SFTTrainer reads them: `{"messages": [{"role", "content"}, ...]}`.

    A trajectory is one chat, or one for each turn where every turn was a training row of its own, since a later prompt
    does not hold the earlier ones there. Trajectories that failed or have no turn give none.

    Args:
        records: with their preambles.

    Yields:
        The messages, and `env`, `seed`, `rollout_index`, `return` and `success` of the trajectory.

    Raises:
        RecipeError: a record does not say what the model saw.
    """
    for record in records:
        if record["excluded"] or not record["turns"]:
            continue
        about = {name: record[name] for name in _KEPT}
        if not record["row_per_turn"]:
            yield {"messages": messages(record), **about}
            continue
        for turn in record["turns"]:
            yield {"messages": [*messages(record, turn["turn"]), answer(turn)], **about}


def preferences(records: Iterable[Record], margin: float = 0.0) -> Iterator[dict[str, Any]]:
    """The best trajectory of a group against the worst, as trl's DPOTrainer and RewardTrainer read pairs.

    A group has one environment, seed and step of a run, and starts with the same messages. Of equal returns the lower
    rollout index stands for all. Trajectories that failed or have no turn take no part.

    Args:
        records: with their preambles.
        margin: the smallest difference of returns of a pair; equal returns give none.

    Yields:
        `prompt` (the messages up to the first response), `chosen` and `rejected` (all later ones), `margin` (the
        difference of returns), `return_chosen`, `return_rejected`, `env` and `seed`.

    Raises:
        RecipeError: a record does not say what the model saw, or its turns were rows of their own: then no prompt holds
            the messages before, and a pair of conversations would be one that the model never had.
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
