"""Indicators and causes by name; `@indicator` and `@cause` add one from any package or file (`ragen_verl.extensions`).

    @indicator("hedging", metrics={"hedging/maybe": "share of thoughts with the word maybe"})
    def hedging(records, *, word: str = "maybe") -> dict[str, float]: ...

    @cause("hedging", reads=("hedging/maybe",), advice="Reward short thoughts.")
    def hedging_grows(trace, *, factor: float = 2.0) -> Evidence | None: ...

Their options are their keyword-only parameters. A recipe sets them in `ragen.diagnostics.indicators.{name}` and
`ragen.diagnostics.causes.{name}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ragen_verl.extensions import Registry, check_options

__all__ = [
    "CAUSES",
    "INDICATORS",
    "NOTE",
    "WARNING",
    "Cause",
    "Evidence",
    "Indicator",
    "Options",
    "cause",
    "indicator",
    "with_options",
]

WARNING, NOTE = "warning", "note"

_Record = Mapping[str, Any]
Options = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Evidence:
    """Why a rule fired.

    Attributes:
        metric: the metric that shows it.
        baseline: the metric's earlier value; None where the rule does not compare.
        value: the metric's present value.
        words: a remark on the numbers.
        level: `warning`, or `note` for something that also occurs in runs that go well.
        advice: what to change in this case; empty where the cause's own advice holds.
    """

    metric: str
    baseline: float | None
    value: float
    words: str = ""
    level: str = WARNING
    advice: str = ""


@dataclass(frozen=True)
class Indicator:
    """A function over the trajectories of one step.

    Attributes:
        name: as in the recipe.
        function: (records, **options) -> metrics. The records are `Trajectory.record()` of every trajectory of the
            step, before the filter, those of failed episodes (`excluded`) included.
        metrics: metric -> its meaning; these metrics get a baseline and a line in the verdict's table.
    """

    name: str
    function: Callable[..., Mapping[str, float]]
    metrics: Mapping[str, str]


@dataclass(frozen=True)
class Cause:
    """A rule over the run's metrics.

    Attributes:
        name: as in the verdict, in `verdict/{name}` and in the recipe.
        function: (trace, **options) -> the evidence if the rule fires after the last step, else None.
        reads: the metrics that the rule reads from the trace; success and reward are always in it.
        advice: what to change, with the keys of the recipe.
    """

    name: str
    function: Callable[..., Evidence | None]
    reads: tuple[str, ...]
    advice: str


INDICATORS: Registry[Indicator] = Registry("indicator")
CAUSES: Registry[Cause] = Registry("cause")


def indicator(name: str, *, metrics: Mapping[str, str]) -> Callable[[Callable], Callable]:
    """A decorator that registers an indicator; for the arguments see `Indicator`.

    Raises:
        RecipeError: another indicator has the name.
    """

    def register(function: Callable) -> Callable:
        INDICATORS.add(name, Indicator(name, function, dict(metrics)))
        return function

    return register


def cause(name: str, *, reads: Sequence[str], advice: str) -> Callable[[Callable], Callable]:
    """A decorator that registers a cause; for the arguments see `Cause`.

    Raises:
        RecipeError: another cause has the name.
    """

    def register(function: Callable) -> Callable:
        CAUSES.add(name, Cause(name, function, tuple(reads), advice))
        return function

    return register


def with_options(registry: Registry, options: Options, block: str) -> dict[str, Callable]:
    """Every function of a registry with the options that a recipe gives it, in the order of registration.

    Args:
        registry: `INDICATORS` or `CAUSES`.
        options: name -> option -> value.
        block: the block's name under `ragen.diagnostics`, for messages.

    Raises:
        RecipeError: a name that is not registered, or an option that its function does not take.
    """
    path = f"ragen.diagnostics.{block}"
    for name in options:
        registry.find(name, f"A key of {path}")
    return {
        name: partial(
            one.function,
            **check_options(one.function, options.get(name) or {}, f"{path}.{name}", f"the {registry.kind} {name}"),
        )
        for name, one in registry.items()
    }
