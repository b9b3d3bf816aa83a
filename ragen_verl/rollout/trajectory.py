"""The result of one episode: its turns with their ids, its metrics, and a readable record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.metadata import version
from itertools import chain, repeat
from typing import Any

from ragen_verl.env.calls import meant
from ragen_verl.env.core import flag
from ragen_verl.env.text import encodable
from ragen_verl.names import PARTS

__all__ = [
    "RECORD",
    "RECORD_SCHEMA",
    "Offsets",
    "Record",
    "StopReason",
    "Trajectory",
    "Turn",
    "environment_of",
    "plain",
    "rounded",
]

RECORD = "trajectory"
"""The key under which verl carries a record, as JSON text."""

RECORD_SCHEMA = 3
"""Version of `Trajectory.record()`; increased when a field changes its meaning or is removed.

2: there were no messages, versions and times; files had `infos` and `metrics` as in memory, and `error` null.
1: `env_id` was the name in the metrics, which is `env` now; the stop reason `failed` stood for `terminated` and
`truncated`; there was no `truncated`.
"""

Record = Mapping[str, Any]
"""`Trajectory.record()`, in memory."""

Offsets = Callable[[list[int]], list[int]]
"""Token ids of a response -> for each, the character of the text at which it begins."""

_DECIMALS = 6
_PACKAGE = version("ragen-verl")

_FLOAT_BITS = 1024
_ERRORS = ("malformed", "unknown_tool", "arguments", "tool", "limit")


class StopReason(str, Enum):
    """Why an episode ended.

    With `SOLVED` and `TERMINATED` the task itself ended, with and without success. With `TRUNCATED` (the environment's
    own limit), the budgets and `CONTEXT_FULL` the episode was cut short, and its rest is unknown.
    """

    SOLVED = "solved"
    TERMINATED = "terminated"
    TRUNCATED = "truncated"
    ACTION_BUDGET = "action_budget"
    TURN_BUDGET = "turn_budget"
    CONTEXT_FULL = "context_full"
    ENV_ERROR = "environment_error"
    ENGINE_ERROR = "engine_error"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of_step(cls, success: Any, terminated: Any, truncated: Any) -> StopReason | None:
        """The reason why an episode ends with this step of the environment; None if it continues.

        Success ends the episode even if the environment does not report an end.

        Raises:
            TypeError: one of the three is not a bool (see `flag`).
        """
        names = ("info['success']", "terminated", "truncated")
        reasons = (cls.SOLVED, cls.TERMINATED, cls.TRUNCATED)
        ends = [flag(name, value) for name, value in zip(names, (success, terminated, truncated), strict=True)]
        return next((reason for reason, yes in zip(reasons, ends, strict=True) if yes), None)

    @property
    def cut_short(self) -> bool:
        """Whether the environment or the rollout cut the episode short: it neither reached its end nor failed."""
        return self in (self.TRUNCATED, self.ACTION_BUDGET, self.TURN_BUDGET, self.CONTEXT_FULL)


def environment_of(record: Mapping[str, Any]) -> str:
    """The name in the metrics of a record's environment, also for schema 1."""
    return record["env"] if "env" in record else record["env_id"]


@dataclass
class Turn:
    """One answer of the model and its effects.

    Attributes:
        state: the observation that the model saw.
        prompt_ids: the new ids since the last response; for the first turn, and where every turn is a training row of
            its own, the whole prompt.
        response_ids: the exact sampled ids, at least one.
        log_probs: one per sampled id, or None if the engine gave none.
        text, think: the decoded response, and its thoughts.
        format_ok: whether the response had the wanted tags.
        actions: all parsed actions, executed or not.
        num_valid: how many of `actions` were valid.
        executed: the actions that reached the environment.
        reward: the sum of the environment's raw rewards for the executed actions.
        penalty: the format penalty, and for the last turn before a full context the cost of the turns that no longer
            fit; 0 or negative.
        rewards: the named parts that count in place of `reward` where a recipe has rewards in addition to the
            environment's (`ragen_verl.rollout.reward`): weighted, the environment's own among them. Otherwise empty.
        valid: whether there was an action and all actions were valid.
        effective: whether an executed action had an effect.
        infos, seconds: the environment's info for each executed action, and the wall-clock time that it took.
        observation: the observation after the last executed action; `state` if there was none.
        user: the message before the response, as the model read it, without system message and task prompt.
        shown_from: the number of the oldest turn whose messages the prompt showed.
        prefill: the text before `text` in the model's message; the column `prefix` of a record.
        generate_seconds, env_seconds: wall-clock time of waiting for the engine, for the environment.
    """

    state: str
    prompt_ids: list[int]
    response_ids: list[int]
    log_probs: list[float] | None = None
    text: str = ""
    think: str = ""
    format_ok: bool = False
    actions: list[str] = field(default_factory=list)
    num_valid: int = 0
    executed: list[str] = field(default_factory=list)
    reward: float = 0.0
    penalty: float = 0.0
    rewards: dict[str, float] = field(default_factory=dict)
    valid: bool = False
    effective: bool = False
    infos: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    observation: str = ""
    user: str = ""
    shown_from: int = 1
    prefill: str = ""
    generate_seconds: float = 0.0
    env_seconds: float = 0.0

    @property
    def total(self) -> float:
        """What the turn adds to the return: the reward, or its parts where there are some, and the penalty."""
        return (sum(self.rewards.values()) if self.rewards else self.reward) + self.penalty

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls of tools, in order: name, arguments, result, kind of error ("" without), seconds.

        Those that were not made are among them: `malformed` could not be read, `limit` were too many in one reply. A
        reply without a call is none.
        """
        made: list[dict[str, Any]] = [
            {**info["call"], "seconds": round(seconds, 4)}
            for info, seconds in zip(self.infos, chain(self.seconds, repeat(0.0)), strict=False)
            if info.get("call", {}).get("name") or info.get("call", {}).get("error")
        ]
        refused = [meant(action) for action in self.actions[len(self.executed) :]] if made else []
        return made + [{**one, "result": "", "error": "limit", "seconds": 0.0} for one in refused if "name" in one]

    def numbers(self) -> dict[str, float]:
        """Numeric values of the infos without `success`; the last action's value counts (RAGEN's turn info)."""
        merged = {key: value for info in self.infos for key, value in info.items() if key != "success"}
        numbers = {key: _number(value) for key, value in merged.items()}
        return {key: value for key, value in numbers.items() if value is not None}

    def record(self, number: int, offsets: Offsets | None = None) -> dict[str, Any]:
        """The turn as data for JSON, with its tokens where `offsets` are given."""
        found = {
            "turn": number,
            "shown_from": self.shown_from,
            "user": self.user,
            "state": self.state,
            "prefix": self.prefill,
            "response": self.text,
            "reasoning": self.think,
            "actions": list(self.actions),
            "executed": list(self.executed),
            "observation": self.observation,
            "reward": plain(self.reward),
            "penalty": plain(self.penalty),
            "rewards": plain(self.rewards),
            "format_ok": self.format_ok,
            "valid": self.valid,
            "effective": self.effective,
            "prompt_tokens": len(self.prompt_ids),
            "response_tokens": len(self.response_ids),
            "generate_seconds": round(self.generate_seconds, 4),
            "env_seconds": round(self.env_seconds, 4),
            "infos": plain([{key: info[key] for key in info if key != "call"} for info in self.infos]),
            "calls": plain(self.calls),
        }
        if offsets is not None:
            found["tokens"] = {
                "prompt_ids": list(self.prompt_ids),
                "ids": list(self.response_ids),
                "offsets": offsets(self.response_ids),
                "log_probs": [rounded(value) for value in self.log_probs or []],
                "mask": [1] * len(self.response_ids),
                "advantages": [],
            }
        return found


@dataclass
class Trajectory:
    """One episode. The ids are exactly those that the engine read and sampled; none was decoded and encoded again.

    Attributes:
        env_id, seed, rollout_index: the environment, the seed of the group, and the number of the episode in the group.
        prompt_ids: the first turn's prompt; empty if the environment failed before.
        turns: the turns; empty if the episode ended before the first response.
        stop_reason, success: the reason of its end; success is `stop_reason == SOLVED`.
        error: the text of the exception, for `ENV_ERROR` and `ENGINE_ERROR`.
        seconds, generate_seconds, env_seconds: wall-clock time in total, of waiting for the engine, for the
            environment.
        row_per_turn: whether every turn is a training row with its own prompt; otherwise one row holds all turns.
        env_name: the environment's name in metrics, where it is not its id.
        system, task_prompt: the system message and the task prompt, as the model read them; in a record `preamble`.
        protocol: the version of the prompts' wording.
        started: its start, in seconds since 1970.
        tools: the schemas of the tools that the model was shown.
    """

    env_id: str
    seed: int
    rollout_index: int
    prompt_ids: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    stop_reason: StopReason = StopReason.TURN_BUDGET
    error: str | None = None
    seconds: float = 0.0
    generate_seconds: float = 0.0
    env_seconds: float = 0.0
    row_per_turn: bool = False
    env_name: str | None = None
    system: str = ""
    task_prompt: str = ""
    protocol: int = 0
    started: float = 0.0
    tools: list[dict[str, Any]] = field(default_factory=list)

    @property
    def success(self) -> bool:
        """Whether the environment reported that the task was solved."""
        return self.stop_reason is StopReason.SOLVED

    @property
    def excluded(self) -> bool:
        """Whether environment or engine failed: then it is counted, but left out of loss, statistics and baselines."""
        return self.stop_reason in (StopReason.ENV_ERROR, StopReason.ENGINE_ERROR)

    @property
    def ret(self) -> float:
        """Return of the episode: the sum of what all turns add to it (`Turn.total`), undiscounted."""
        return float(sum(turn.total for turn in self.turns))

    # -- metrics and record -------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Numbers of this episode.

        Under RAGEN's names: `success`, `num_actions`, `response_length` (sampled tokens of all turns) and every numeric
        info key (`action_is_valid`, `action_is_effective`, ...): the mean over turns of the value of the turn's last
        action, where a turn that executed nothing counts as 0.

        In addition: `truncated` (cut short, see `StopReason`); `turns`, `return`, `penalty`; `reasoning_length` (words
        of the thoughts of all turns); `valid_action_ratio` (share of valid actions among the parsed ones),
        `effective_action_ratio` (share of actions with an effect among the executed ones), `valid_turn_ratio`,
        `effective_turn_ratio`, `format_ratio` (share of turns with the wanted tags). Where the return has named parts
        (`Turn.rewards`), `reward/{part}` is the sum of each over the turns.

        With tools: `calls`, `calls_per_turn`, `turns_without_call` (share of turns), `call_errors/{kind}` (share of
        calls that ended with an error of the kind) and `tools/{name}` (share of calls that were for the tool).
        """
        turns = self.turns
        executed = [info for turn in turns for info in turn.infos]
        numbers = [turn.numbers() for turn in turns]
        # RAGEN's flags are always present, so that episodes without an action lower their mean.
        keys = dict.fromkeys(["action_is_valid", "action_is_effective", *(key for found in numbers for key in found)])
        info_means = {key: _ratio(sum(found.get(key, 0.0) for found in numbers), len(turns)) for key in keys}
        parts = dict.fromkeys(part for turn in turns for part in turn.rewards)
        sums = {f"{PARTS}{part}": sum(turn.rewards[part] for turn in turns) for part in parts}
        return (
            info_means
            | sums
            | (self._call_metrics() if self.tools else {})
            | {
                "success": float(self.success),
                "truncated": float(self.stop_reason.cut_short),
                "num_actions": float(sum(len(turn.executed) for turn in turns)),
                "response_length": float(sum(len(turn.response_ids) for turn in turns)),
                "turns": float(len(turns)),
                "return": self.ret,
                "penalty": float(sum(turn.penalty for turn in turns)),
                "reasoning_length": float(sum(len(turn.think.split()) for turn in turns)),
                "valid_action_ratio": _ratio(sum(t.num_valid for t in turns), sum(len(t.actions) for t in turns)),
                "effective_action_ratio": _ratio(
                    sum(bool(info.get("action_is_effective")) for info in executed), len(executed)
                ),
                "valid_turn_ratio": _ratio(sum(turn.valid for turn in turns), len(turns)),
                "effective_turn_ratio": _ratio(sum(turn.effective for turn in turns), len(turns)),
                "format_ratio": _ratio(sum(turn.format_ok for turn in turns), len(turns)),
            }
        )

    def _call_metrics(self) -> dict[str, float]:
        calls = [call for turn in self.turns for call in turn.calls]
        errors, names = Counter(call["error"] for call in calls), Counter(call["name"] for call in calls)
        kinds = dict.fromkeys([*_ERRORS, *errors])
        tools = [one.get("function", one).get("name", "") for one in self.tools]
        return {
            "calls": float(len(calls)),
            "calls_per_turn": _ratio(len(calls), len(self.turns)),
            "turns_without_call": _ratio(sum(not turn.calls for turn in self.turns), len(self.turns)),
            **{f"call_errors/{kind}": _ratio(errors[kind], len(calls)) for kind in kinds if kind},
            **{f"tools/{name}": _ratio(names[name], len(calls)) for name in tools},
        }

    def record(self, offsets: Offsets | None = None) -> dict[str, Any]:
        """The episode as data for JSON; its `schema` is `RECORD_SCHEMA`.

        Args:
            offsets: if given, every turn has `tokens`: the new ids of its prompt; and lists with one entry per sampled
                id: the ids, their first characters in `response`, the engine's log-probabilities (nats, six decimals;
                empty if it gave none), the mask of the loss (1 or 0), and the advantages, which are filled in later.
        """
        return {
            "schema": RECORD_SCHEMA,
            "package": _PACKAGE,
            "protocol": self.protocol,
            "preamble": {
                "system": self.system,
                "head": self.task_prompt,
                **({"tools": self.tools} if self.tools else {}),
            },
            "env_id": self.env_id,
            "env": self.env_name or self.env_id,
            "seed": self.seed,
            "rollout_index": self.rollout_index,
            "stop_reason": str(self.stop_reason),
            "success": self.success,
            "truncated": self.stop_reason.cut_short,
            "return": plain(self.ret),
            "excluded": self.excluded,
            "row_per_turn": self.row_per_turn,
            "error": self.error,
            "started": round(self.started, 3),
            "seconds": round(self.seconds, 4),
            "metrics": plain(self.metrics()),
            "turns": [turn.record(number, offsets) for number, turn in enumerate(self.turns, start=1)],
        }


def rounded(value: float) -> float | None:
    """A log-probability or an advantage as a record has it; None if it is not finite."""
    return round(float(value), _DECIMALS) if math.isfinite(value) else None


def plain(value: Any) -> Any:
    """`value` as strict JSON data that UTF-8 can write.

    Numpy scalars and arrays become numbers and lists; NaN, infinities and integers beyond every float become None; lone
    surrogates become "?".
    """
    if isinstance(value, dict):
        return {plain(key) if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy, torch
        return plain(value.tolist())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int) and value.bit_length() > _FLOAT_BITS:
        return None
    return value if value is None or isinstance(value, (bool, int)) else encodable(str(value))


def _number(value: Any) -> float | None:
    """A finite float from a number, bool or numpy scalar; None from anything else."""
    if isinstance(value, (str, bytes)) or getattr(value, "ndim", False):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
