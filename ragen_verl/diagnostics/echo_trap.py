"""Echo Trap: indicators of collapse from a step's trajectories (arXiv 2504.20073, section 4.1 and appendix B.3).

The paper follows in-group reward standard deviation, entropy, reward, gradient norm and response length. Those come
from the step's metrics; this module adds, under `echo/`, metrics that are computed from the trajectories. `readings`
compares them and the metrics of every other indicator with the run's own first steps.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any

from annotated_types import Ge

from ragen_verl.diagnostics.registry import INDICATORS, Options, indicator, with_options
from ragen_verl.diagnostics.repetition import NGRAM, repetition
from ragen_verl.diagnostics.series import Trace
from ragen_verl.names import (
    DISTINCT_WITHIN,
    ECHO,
    ENTROPY,
    FORMAT_VALID,
    GRADIENT_NORM,
    REASONING_WORDS,
    REWARD_MEAN,
    REWARD_STD,
    SHARED,
    TRAIN_SUCCESS,
)
from ragen_verl.rollout.trajectory import environment_of

__all__ = ["Reading", "StepIndicators", "echo_trap", "meanings", "readings"]


_STEP_METRICS = {
    TRAIN_SUCCESS: "share of successes",
    REWARD_MEAN: "mean return",
    REWARD_STD: "standard deviation of returns inside a group",
    ENTROPY: "entropy per token (kept groups)",
    GRADIENT_NORM: "gradient norm before clipping (kept groups)",
}
"""Metric of the step -> its meaning; over all trajectories before the filter, unless the meaning says otherwise."""


@dataclass(frozen=True)
class Reading:
    """A metric's present value and that of the run's own first steps.

    Attributes:
        metric, meaning: its name and its meaning.
        baseline, std: median of the first steps, and the standard deviation of the noise between one step and the next.
        value: median of the last steps.
    """

    metric: str
    meaning: str
    baseline: float
    std: float
    value: float


@indicator(
    "echo_trap",
    metrics={
        REASONING_WORDS: "words of reasoning per turn",
        FORMAT_VALID: "share of turns in the wanted format",
        DISTINCT_WITHIN: "distinct n-grams inside a trajectory",
        f"{ECHO}/distinct_across": "distinct n-grams of the step",
        SHARED: "n-grams shared between prompts",
    },
)
def echo_trap(records: Sequence[Mapping[str, Any]], *, ngram: Annotated[int, Ge(1)] = NGRAM) -> dict[str, float]:
    """The Echo Trap indicators that are computed from a step's trajectories.

    Args:
        records: `Trajectory.record()` of each trajectory of the step, before the filter; excluded ones are skipped.
        ngram: words per n-gram.

    Returns:
        `echo/reasoning_words`: words of the thoughts per turn (per trajectory, the number would fall when success
        makes trajectories shorter); `echo/format_valid`: share of turns with the wanted tags; `echo/distinct_within`,
        `echo/distinct_across`, `echo/shared`: see `Repetition`, over the thoughts, or over the whole responses where no
        turn has thoughts; each environment is counted by itself, and the mean is over trajectories. A metric that
        cannot be computed is left out.
    """
    played = [record for record in records if not record["excluded"] and record["turns"]]
    turns = [turn for record in played for turn in record["turns"]]
    if not turns:
        return {}
    key = "reasoning" if any(turn["reasoning"] for turn in turns) else "response"
    metrics = {
        REASONING_WORDS: sum(len(turn["reasoning"].split()) for turn in turns) / len(turns),
        FORMAT_VALID: sum(bool(turn["format_ok"]) for turn in turns) / len(turns),
    }
    by_env: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in played:
        by_env[environment_of(record)].append(record)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for same in by_env.values():
        texts = [[turn[key] for turn in record["turns"]] for record in same]
        for name, value in vars(repetition(texts, [record["seed"] for record in same], ngram)).items():
            if isfinite(value):
                sums[name][0] += value * len(same)
                sums[name][1] += len(same)
    return metrics | {f"{ECHO}/{name}": total / count for name, (total, count) in sums.items()}


class StepIndicators:
    """Every registered indicator, with a recipe's options.

    Args:
        options: name -> option -> value, as in `ragen.diagnostics.indicators`.

    Raises:
        RecipeError: see `with_options`.
    """

    def __init__(self, options: Options | None = None) -> None:
        self._functions: dict[str, Callable] = with_options(INDICATORS, options or {}, "indicators")

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """The metrics of one step's trajectories.

        An indicator that raises is reported on stderr and left out from then on: an observer must not end a run.
        """
        metrics: dict[str, float] = {}
        for name, function in list(self._functions.items()):
            try:
                metrics |= function(records)
            except Exception as error:
                del self._functions[name]
                print(f"ragen_verl: indicator {name} is off, {type(error).__name__}: {error}", file=sys.stderr)
        return metrics


def meanings() -> dict[str, str]:
    """Metric -> its meaning, for every metric in the verdict's table."""
    return _STEP_METRICS | {metric: words for one in INDICATORS.values() for metric, words in one.metrics.items()}


def readings(trace: Trace, meaning_of: Mapping[str, str]) -> list[Reading]:
    """A reading of every metric of `meaning_of` (see `meanings`) that has a baseline by now."""
    found = []
    for metric, meaning in meaning_of.items():
        one = trace[metric]
        if one.baseline is not None and one.recent is not None:
            found.append(Reading(metric, meaning, one.baseline, one.std, one.recent))
    return found
