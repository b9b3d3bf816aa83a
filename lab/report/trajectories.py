"""Trajectories for the page and the terminal: one form for every version of the record, and filters."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["EXCLUDED", "FAILED", "OUTCOMES", "SOLVED", "Wanted", "finite", "normalise"]

SOLVED, FAILED, EXCLUDED = "solved", "failed", "excluded"
OUTCOMES = (SOLVED, FAILED, EXCLUDED)

_USUAL = {"success", "action_is_valid", "action_is_effective"}  # infos whose content is in other fields


def normalise(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """A record in the form for views; None if it is no trajectory. Every field has the correct type.

    Args:
        record: as `ragen_verl.runs.trajectories` reads it, in any schema.

    Returns:
        `env`, `seed`, `rollout_index`, `stop_reason`, `outcome` (one of `OUTCOMES`), `kept` (by the filter; None if
        unknown), `return`, `error`, `seconds`, `preamble` (system message and task as one text), and `turns`, each with
        the fields of `Turn.record` that are shown, `calls` of tools (name, arguments, result, error, seconds),
        `advantage` (mean over the tokens that are trained on) and `tokens`
        (None, or `sizes` in characters and the available numbers of each token). An invalid number is None, an invalid
        text is "".
    """
    turns, seed = record.get("turns"), _number(record.get("seed"))
    if not isinstance(turns, list) or seed is None:
        return None
    success, excluded = bool(record.get("success")), bool(record.get("excluded"))
    kept, preamble = record.get("kept"), record.get("preamble")
    task = [_text(preamble.get(name)) for name in ("system", "head")] if isinstance(preamble, Mapping) else []
    return {
        "env": _text(record.get("env", record.get("env_id"))),
        "seed": int(seed),
        "rollout_index": int(_number(record.get("rollout_index")) or 0),
        "stop_reason": _text(record.get("stop_reason")),
        "outcome": EXCLUDED if excluded else SOLVED if success else FAILED,
        "kept": kept if isinstance(kept, bool) else None,
        "return": _number(record.get("return")),
        "error": _text(record.get("error")),
        "seconds": _number(record.get("seconds")),
        "preamble": "\n\n".join(one for one in task if one),
        "turns": [_turn(turn) for turn in turns if isinstance(turn, Mapping)],
    }


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    infos = [info for info in _list(turn.get("infos")) if isinstance(info, Mapping)]
    parts, tokens = turn.get("rewards"), _tokens(turn)
    trained = _trained(tokens or {})
    return {
        **{name: _text(turn.get(name)) for name in ("user", "state", "reasoning", "prefix", "response", "observation")},
        **{name: [_text(one) for one in _list(turn.get(name))] for name in ("actions", "executed")},
        **{name: _number(turn.get(name)) for name in ("reward", "penalty")},
        "rewards": {_text(name): _number(one) for name, one in parts.items()} if isinstance(parts, Mapping) else {},
        **{name: bool(turn.get(name, True)) for name in ("format_ok", "valid", "effective")},
        "response_tokens": int(_number(turn.get("response_tokens")) or 0),
        "infos": {key: _text(value) for info in infos for key, value in info.items() if key not in _USUAL},
        "advantage": sum(trained) / len(trained) if trained else None,
        "calls": [_call(one) for one in _list(turn.get("calls")) if isinstance(one, Mapping)],
        "tokens": tokens,
    }


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's call: every value that is no text is written as JSON."""
    texts = {name: call.get(name) for name in ("name", "arguments", "result", "error")}
    return {
        **{name: _text(one) if isinstance(one, str) else _json(one) for name, one in texts.items()},
        "seconds": _number(call.get("seconds")),
    }


def _tokens(turn: Mapping[str, Any]) -> dict[str, list] | None:
    """The length of each sampled token in characters, and its numbers, as far as their lengths agree."""
    found = turn.get("tokens")
    starts = _list(found.get("offsets")) if isinstance(found, Mapping) else []
    if not starts or not all(isinstance(one, int) for one in starts) or starts != sorted(starts):
        return None
    ends = [*starts[1:], max(len(_text(turn.get("response"))), starts[-1])]
    numbers = {name: _numbers(_list(found.get(name))) for name in ("log_probs", "advantages", "mask")}
    sizes = [end - start for start, end in zip([0, *starts[1:]], ends, strict=True)]
    return {"sizes": sizes, **{name: values for name, values in numbers.items() if len(values) == len(starts)}}


def _trained(tokens: Mapping[str, list]) -> list[float]:
    """Advantages of the tokens with a loss."""
    advantages = tokens.get("advantages", [])
    mask = tokens.get("mask", [1] * len(advantages))
    return [one for one, trained in zip(advantages, mask, strict=False) if trained and one is not None]


def finite(value: Any) -> bool:
    """Whether a value is a finite number that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


@dataclass(frozen=True)
class Wanted:
    """A filter of trajectories; a field with None (or "") filters nothing.

    Attributes:
        outcome: one of `OUTCOMES`.
        env, stop_reason: the whole name.
        seed, rollout_index: the group, and the trajectory in it.
        search: a text that occurs, in any case, in a state, a response, an action or an error.
    """

    outcome: str | None = None
    env: str | None = None
    stop_reason: str | None = None
    seed: int | None = None
    rollout_index: int | None = None
    search: str = ""

    def matches(self, shown: Mapping[str, Any]) -> bool:
        """Whether a normalised trajectory passes the filter."""
        asked = ("outcome", "env", "stop_reason", "seed", "rollout_index")
        if any(getattr(self, name) not in (None, shown[name]) for name in asked):
            return False
        return not self.search or self.search.casefold() in "\n".join(_texts(shown)).casefold()


def _texts(shown: Mapping[str, Any]) -> Iterable[str]:
    """All texts of a normalised trajectory that are searched."""
    for turn in shown["turns"]:
        yield from (turn["state"], turn["response"], turn["observation"], *turn["actions"])
        yield from (text for call in turn["calls"] for text in (call["name"], call["arguments"], call["result"]))
    yield shown["error"]


def _numbers(values: list) -> list[float | None]:
    """The numbers of a list; a list of valid numbers, as nearly all are, is returned unchanged."""
    plain = {*map(type, values)} <= {int, float} and all(map(finite, values))
    return values if plain else [_number(one) for one in values]


def _list(value: Any) -> list:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, indent=1, ensure_ascii=False, default=str)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) or finite(value) else None
