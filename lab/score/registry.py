"""Evaluators by name; `@evaluator` adds one from any package or file (`ragen_verl.extensions`).

    @evaluator("hedging", better="lower", bounded=True)
    def hedging(trajectory, *, word: str = "maybe") -> float | None:
        '''Share of turns whose reasoning has a word of doubt.'''

Options are keyword-only parameters; `ragen-verl score RUN --set hedging.word=perhaps` sets one.
"""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ragen_lab.score.saved import Played

from ragen_verl.errors import RecipeError
from ragen_verl.extensions import Registry, check_options

__all__ = ["EVALUATORS", "HIGHER", "LOWER", "Evaluator", "evaluator", "run"]

HIGHER, LOWER = "higher", "lower"


@dataclass(frozen=True)
class Evaluator:
    """A number for every trajectory.

    Attributes:
        name: its name in tables, options and thresholds.
        function: (trajectory, **options) -> a number, or None where it does not apply; with `together` (trajectories,
            **options) -> as many numbers.
        better: `higher`, `lower`, or None for a number that is neither, which no gate looks at.
        bounded: whether the number is between 0 and 1; the ends of its intervals are cut to this range.
        together: whether the function gets all trajectories of one environment and step at once.
        reads_scores: whether it reads `Played.scores`; then it is called after the evaluators that do not.
        on_request: whether it is called only if it is named.
        about: the first line of the function's docstring.
    """

    name: str
    function: Callable[..., Any]
    better: str | None
    bounded: bool
    together: bool
    reads_scores: bool
    on_request: bool
    about: str


EVALUATORS: Registry[Evaluator] = Registry("evaluator", home="ragen_lab.score")


def evaluator(
    name: str,
    *,
    better: Literal["higher", "lower"] | None,
    bounded: bool = False,
    together: bool = False,
    reads_scores: bool = False,
    on_request: bool = False,
) -> Callable[[Callable], Callable]:
    """A decorator that registers an evaluator; for the arguments see `Evaluator`.

    Raises:
        RecipeError: another evaluator has the name, or `better` is not one of the three.
    """
    if better not in (HIGHER, LOWER, None):
        raise RecipeError(f"better of the evaluator {name!r} is {better!r}; it takes 'higher', 'lower' or None.")

    def register(function: Callable) -> Callable:
        about = (inspect.getdoc(function) or name).splitlines()[0]
        EVALUATORS.add(name, Evaluator(name, function, better, bounded, together, reads_scores, on_request, about))
        return function

    return register


def run(
    trajectories: Sequence[Played],
    names: Collection[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Evaluator]:
    """Fill `scores` of every trajectory.

    Args:
        trajectories: those of any environments and steps.
        names: evaluators to call; None calls all that are not `on_request`, and those that have options.
        options: evaluator -> option -> value.

    Returns:
        The evaluators that were called, in the order of the registry.

    Raises:
        RecipeError: an unknown evaluator, an option that it does not take, or a result that is no number.
    """
    options = options or {}
    for name in [*(names or ()), *options]:
        EVALUATORS.find(name, "An evaluator")
    chosen = [
        one
        for one in list(EVALUATORS.values())
        if (one.name in names if names is not None else not one.on_request) or one.name in options
    ]
    checked = {
        one.name: check_options(one.function, options.get(one.name, {}), one.name, f"the evaluator {one.name}")
        for one in chosen
    }
    groups: dict[Any, list[Played]] = defaultdict(list)
    for trajectory in trajectories:
        groups[trajectory.env, trajectory.split, trajectory.step].append(trajectory)
    for called in sorted(chosen, key=lambda one: one.reads_scores):
        given, function = checked[called.name], called.function
        for group in groups.values():
            values = function(group, **given) if called.together else [function(one, **given) for one in group]
            for trajectory, value in zip(group, values, strict=True):
                trajectory.scores[called.name] = _number(called.name, value)
    return chosen


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RecipeError(f"The evaluator {name} returned {value!r}; it has to return a number or None.") from None
    return number if math.isfinite(number) else None
