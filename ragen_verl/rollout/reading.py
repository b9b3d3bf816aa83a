"""Decode rows of files to records; older versions are converted, and messages are rebuilt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ragen_verl.errors import RecipeError
from ragen_verl.rollout.chat import opening
from ragen_verl.rollout.trajectory import RECORD_SCHEMA, Record, environment_of

__all__ = ["answer", "decode", "messages", "transcript"]

_NEEDED = {*("env_id", "seed", "rollout_index", "stop_reason", "success", "return", "excluded", "metrics", "turns")}


def decode(row: Record, task_prompts: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """A row as a record.

    Args:
        row: of this version or an older one; missing fields are None, and in turns "" and 0.
        task_prompts: key -> texts; `preamble` is None where its key is not among them.

    Raises:
        RecipeError: the row is of a newer version, or is no trajectory.
    """
    try:
        if row["schema"] > RECORD_SCHEMA:
            raise RecipeError(
                f"it has schema {row['schema']} and this version of the package reads {RECORD_SCHEMA} at most: "
                "install a newer one"
            )
        if lacking := _NEEDED - set(row):
            raise KeyError(*sorted(lacking))
        if row["schema"] < 3:
            return _upgraded(row)
        row = {**row, "metrics": row["metrics"] | json.loads(row["env_metrics"]), "error": row["error"] or None}
        row["turns"] = [
            {
                **turn,
                "rewards": json.loads(turn.get("rewards", "{}")),
                **{name: [json.loads(one) for one in turn.get(name, [])] for name in ("infos", "calls")},
            }
            for turn in row["turns"]
        ]
        del row["env_metrics"]
        return row | {"preamble": task_prompts.get(row["preamble"])}
    except RecipeError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise RecipeError(f"it is no trajectory ({type(error).__name__}: {error})") from error


def messages(record: Record, turn: int | None = None) -> list[dict[str, str]]:
    """The messages that the model saw before a turn, in chat format, each with `role` and `content`.

    Args:
        record: a trajectory with its task prompt.
        turn: number of the turn. None takes the last one and adds the model's answer to it.

    Raises:
        RecipeError: the record has no turn, or does not contain what the model saw, because it is of an older version
            or its task prompt is missing.
    """
    turns, task = record["turns"], record.get("preamble")
    if not turns:
        raise RecipeError("This trajectory has no turn, so there are no messages.")
    if task is None:
        raise RecipeError(
            f"This record (schema {record['schema']}) does not say what the model saw: it was written before version 3 "
            "of the record, or preambles.jsonl is not beside it."
        )
    last = turns[-1 if turn is None else turn - 1]
    shown = turns[last["shown_from"] - 1 : last["turn"]]
    found = [_message("system", task["system"])] if task["system"] else []
    found.append(_message("user", opening(task["head"], shown[0]["user"])))
    for before, after in pairwise(shown):
        found += [answer(before), _message("user", after["user"])]
    return found if turn is not None else [*found, answer(last)]


def transcript(record: Record) -> str:
    """The episode as text: each response with the next observation and its reward, and the stop reason."""
    lines = []
    for turn in record["turns"]:
        lines += [turn["prefix"] + turn["response"], f"-> {turn['observation']}", f"reward {turn['reward']:g}", ""]
    return "\n".join([*lines, record["stop_reason"] + (f": {record['error']}" if record["error"] else "")])


def answer(turn: Record) -> dict[str, str]:
    """A turn's response as the message that later prompts show, with the tag in front of it."""
    return _message("assistant", turn["prefix"] + turn["response"])


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _upgraded(row: Record) -> dict[str, Any]:
    new = {
        "user": "",
        "shown_from": 1,
        "prefix": "",
        "rewards": {},
        "calls": [],
        "generate_seconds": 0.0,
        "env_seconds": 0.0,
    }
    known = {"package": None, "protocol": None, "started": None, "row_per_turn": False, "truncated": False}
    turns = [{**new, **turn} for turn in row["turns"]]
    return {**known, **row, "env": environment_of(row), "preamble": None, "turns": turns}
