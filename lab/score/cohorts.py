"""The numbers of evaluators by cohort, each with its interval over initial states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ragen_lab.evaluate.summary import interval
from ragen_lab.markdown import table as markdown_table
from ragen_lab.score.registry import HIGHER, Evaluator
from ragen_lab.score.saved import Played
from ragen_lab.statistics import Estimate, bounded, grouped, mean, rate
from rich.table import Table

from ragen_verl.errors import RecipeError, nearest
from ragen_verl.names import RETURN, SUCCESS

__all__ = [
    "Measure",
    "State",
    "by",
    "cohorts_of",
    "estimate",
    "markdown",
    "measures",
    "results",
    "table",
    "values_by_state",
    "variance",
]

_VARIANCE = "return_variance"
_SEEDS = 64
_WIDE = 6  # up to this many cohorts have a column of their own in the terminal

State = tuple[str, str, int]


@dataclass(frozen=True)
class Measure:
    """A measure of trajectories.

    Attributes:
        name: its name in tables and thresholds.
        of: trajectory -> number, or None where it does not apply.
        better: as in `Evaluator`.
        bounded: whether it is between 0 and 1.
        about: its description in one sentence.
    """

    name: str
    of: Callable[[Played], float | None]
    better: str | None
    bounded: bool
    about: str


def measures(evaluators: Iterable[Evaluator]) -> list[Measure]:
    """The measures success and return, and those of the evaluators, which must have been run before."""
    own = [
        Measure(
            SUCCESS, lambda one: float(one.success), HIGHER, True, "The environment said that the task was solved."
        ),
        Measure(RETURN, lambda one: one.ret, HIGHER, False, "Sum of rewards and format penalties."),
    ]
    return own + [Measure(one.name, _score(one.name), one.better, one.bounded, one.about) for one in evaluators]


def _score(name: str) -> Callable[[Played], float | None]:
    return lambda one: one.scores[name]


def by(names: Sequence[str], width: int = _SEEDS) -> Callable[[Played], str]:
    """The function from a trajectory to the name of its cohort.

    Args:
        names: the properties that define a cohort, from `environment`, `split`, `step`, `seeds` (ranges of `width`
            seeds) and `state`.
        width: the size of a range of seeds.

    Raises:
        RecipeError: another name is given.
    """
    kinds: dict[str, Callable[[Played], str]] = {
        "environment": lambda one: one.env,
        "split": lambda one: one.split,
        "step": lambda one: "no step" if one.step is None else f"step {one.step}",
        "seeds": lambda one: f"seeds {one.seed - one.seed % width} to {one.seed - one.seed % width + width - 1}",
        "state": lambda one: f"{one.env} seed {one.seed}",
    }
    for name in names:
        if name not in kinds:
            raise RecipeError(f"There is no cohort by {name!r}: {nearest(name, list(kinds))}")
    chosen = [kinds[name] for name in dict.fromkeys(names)]
    return lambda one: ", ".join(kind(one) for kind in chosen) or "all"


def cohorts_of(trajectories: Iterable[Played], key: Callable[[Played], str]) -> dict[str, list[Played]]:
    """Cohort -> its trajectories, in the order of split, environment, step and seed."""

    def order(one: Played) -> tuple[str, str, int, int]:
        return one.split, one.env, -1 if one.step is None else one.step, one.seed

    return grouped(sorted(trajectories, key=order), key)


def values_by_state(trajectories: Iterable[Played], measure: Measure) -> dict[State, list[float]]:
    """Initial state -> the numbers of its trajectories, for states that have any."""
    states = grouped(trajectories, lambda one: (one.split, one.env, one.seed))
    values = {state: [measure.of(one) for one in members] for state, members in states.items()}
    known = {state: [value for value in each if value is not None] for state, each in values.items()}
    return {state: each for state, each in known.items() if each}


def estimate(trajectories: Iterable[Played], measure: Measure) -> Estimate | None:
    """The mean over initial states with its interval; None where the measure applies to no trajectory."""
    states = list(values_by_state(trajectories, measure).values())
    if not states:
        return None
    if measure.bounded and all(value in (0.0, 1.0) for values in states for value in values):
        return rate([[bool(value) for value in values] for values in states])
    found = mean([float(np.mean(values)) for values in states])
    return bounded(found) if measure.bounded else found


def variance(trajectories: Iterable[Played]) -> Estimate | None:
    """The return's variance among the trajectories of an initial state, averaged over the states that have several."""
    returns = Measure(RETURN, lambda one: one.ret, HIGHER, False, "")
    variances = [
        float(np.var(values, ddof=1)) for values in values_by_state(trajectories, returns).values() if len(values) > 1
    ]
    return mean(variances) if variances else None


def results(trajectories: Sequence[Played], of: Sequence[Measure], key: Callable[[Played], str]) -> dict[str, Any]:
    """All numbers, as data for JSON.

    Returns:
        `measures` (name -> `better`, `about`) and `cohorts` (name -> `trajectories`, `states`, `values`: measure ->
        `Estimate` as a dict with `trajectories`, the number of those it applies to; None where it applies to none).
    """
    cohorts = {}
    for name, members in cohorts_of(trajectories, key).items():
        values: dict[str, Any] = {}
        for measure in of:
            found = estimate(members, measure)
            applies = sum(measure.of(one) is not None for one in members)
            values[measure.name] = None if found is None else {**vars(found), "trajectories": applies}
        found = variance(members)
        values[_VARIANCE] = None if found is None else {**vars(found), "trajectories": len(members)}
        states = len({(one.split, one.env, one.seed) for one in members})
        cohorts[name] = {"trajectories": len(members), "states": states, "values": values}
    about: dict[str, Any] = {one.name: {"better": one.better, "about": one.about} for one in of}
    about[_VARIANCE] = {"better": None, "about": "Variance of the return among the trajectories of one initial state."}
    return {"measures": about, "cohorts": cohorts}


def _cell(found: Mapping[str, Any] | None) -> str:
    """A value with its interval as text; "-" where there is none."""
    if found is None:
        return "-"
    within = interval(Estimate(*(found[name] for name in ("value", "low", "high", "states"))))
    return f"{found['value']:.3f}" + (f" ({within})" if within else "")


def table(found: Mapping[str, Any], title: str) -> Table:
    """A table for the terminal: a column for each cohort, with intervals; with many cohorts a row for each, without."""
    out = Table(title=title, box=None, header_style="bold", title_justify="left")
    cohorts, names = found["cohorts"], list(found["measures"])
    if len(cohorts) <= _WIDE:
        out.add_column("measure")
        for name, one in cohorts.items():
            out.add_column(f"{name}\n{one['trajectories']} of {one['states']} states", justify="right")
        for name in names:
            out.add_row(name, *(_cell(one["values"][name]) for one in cohorts.values()))
        return out
    out.add_column("cohort", no_wrap=True)
    for name in ("trajectories", *names):
        out.add_column(name.replace("_", "\n"), justify="right")
    for cohort, one in cohorts.items():
        values = (one["values"][name] for name in names)
        out.add_row(cohort, str(one["trajectories"]), *("-" if v is None else f"{v['value']:.3f}" for v in values))
    return out


def markdown(found: Mapping[str, Any], title: str) -> str:
    """A Markdown page: a row for every measure, a column for every cohort, and the meanings of the measures."""
    cohorts = found["cohorts"]
    rows = [["trajectories", *(f"{one['trajectories']} of {one['states']} states" for one in cohorts.values())]]
    rows += [[name, *(_cell(one["values"][name]) for one in cohorts.values())] for name in found["measures"]]
    lines = [f"# {title}", "", *markdown_table(["measure", *cohorts], rows, numbers_from=1)]
    lines += ["", "Means over initial states with 95 % intervals.", ""]
    lines += [f"- {name}: {one['about']}" for name, one in found["measures"].items()]
    return "\n".join(lines) + "\n"
