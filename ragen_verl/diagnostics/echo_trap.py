"""Echo Trap: what a step's trajectories say about themselves (arXiv 2504.20073, section 4.1 and appendix B.3).

The paper watches in-group reward std, entropy, reward, gradient norm and response length. Those come from the step's
metrics; this module adds, under `echo/`, what has to be read from the trajectories. `INDICATORS` lists both, and
`readings` sets each against its own early baseline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from ragen_verl.diagnostics.repetition import NGRAM, repetition
from ragen_verl.diagnostics.series import Trace

# metric -> what it is; all over every trajectory of the step, before the filter, where it says nothing else
INDICATORS = {
    "train/success": "share of successes",
    "rollout/in_group_reward_mean": "mean return",
    "rollout/in_group_reward_std": "spread of returns inside a group",
    "actor/entropy": "entropy per token (kept groups)",
    "actor/grad_norm": "gradient norm before clipping (kept groups)",
    "echo/reasoning_words": "words of reasoning per turn",
    "echo/format_valid": "share of turns in the wanted format",
    "echo/distinct_within": "distinct n-grams inside a trajectory",
    "echo/distinct_across": "distinct n-grams of the step",
    "echo/shared": "n-grams shared between prompts",
}


@dataclass(frozen=True)
class Reading:
    """One indicator now, against the run's own first steps.

    Attributes:
        metric, meaning: a key and a value of `INDICATORS`.
        baseline, spread: median of the first steps, and the size of the noise between one step and the next.
        value: median of the last steps.
    """

    metric: str
    meaning: str
    baseline: float
    spread: float
    value: float


def indicators(records: Sequence[Mapping[str, Any]], n: int = NGRAM) -> dict[str, float]:
    """The indicators that are read from a step's trajectories.

    Args:
        records: `Trajectory.record()` of each trajectory of the step, before the filter; excluded ones are skipped.
        n: words per n-gram.

    Returns:
        `echo/reasoning_words`: words of the thoughts per turn (a trajectory's number of words falls as it gets
        shorter by success, this one does not); `echo/format_valid`: share of turns with the wanted tags;
        `echo/distinct_within`, `echo/distinct_across`, `echo/shared`: see `Repetition`, over the thoughts, or over
        the whole responses where no turn has thoughts; environments are counted apart and averaged by trajectory.
        What cannot be told is left out.
    """
    played = [record for record in records if not record["excluded"] and record["turns"]]
    turns = [turn for record in played for turn in record["turns"]]
    if not turns:
        return {}
    key = "reasoning" if any(turn["reasoning"] for turn in turns) else "response"
    metrics = {
        "echo/reasoning_words": sum(len(turn["reasoning"].split()) for turn in turns) / len(turns),
        "echo/format_valid": sum(bool(turn["format_ok"]) for turn in turns) / len(turns),
    }
    by_env: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in played:
        by_env[record["env_id"]].append(record)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for members in by_env.values():
        texts = [[turn[key] for turn in record["turns"]] for record in members]
        for name, value in vars(repetition(texts, [record["seed"] for record in members], n)).items():
            if isfinite(value):
                sums[name][0] += value * len(members)
                sums[name][1] += len(members)
    return metrics | {f"echo/{name}": total / count for name, (total, count) in sums.items()}


def readings(trace: Trace) -> list[Reading]:
    """Every indicator that has a baseline by now, in the order of `INDICATORS`."""
    found = []
    for metric, meaning in INDICATORS.items():
        one = trace[metric]
        if one.baseline is not None and one.recent is not None:
            found.append(Reading(metric, meaning, one.baseline, one.spread, one.recent))
    return found
