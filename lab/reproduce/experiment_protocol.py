"""The `protocol` block of a sweep: question, claim, statistic and decision rule, written down before the runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import pairwise
from typing import Any

from ragen_verl.config.schema import FILLED, at_least, one_of
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.names import HELD_OUT_SUCCESS

__all__ = ["LEVEL", "SCALES", "Comparison", "Cost", "Curve", "Event", "ExperimentProtocol", "Statistic"]

_SEED_DISTANCE = 1_000_000
"""The least distance between two seeds of a protocol: a run uses steps * groups seeds, with dynamic sampling more."""

_LEAST_SEEDS = 5

LEVEL = 0.05
"""The level of the two-sided tests of directions."""

SCALES = ("nano", "paper")

_DECIDING = ("name", "first", "second", "than", "expected", "paired", "decides", "statistic")
"""Of a comparison; its claim and source are words."""


@dataclass(frozen=True)
class Event:
    """The first step at which a metric crosses a line and stays there.

    Attributes:
        metric: a name in metrics.jsonl.
        below, above: the line; exactly one of the two is given.
        of: what the line is a share of: the `first` logged value or the `best` so far; `value`: the line is absolute.
        hold: the number of consecutive logged values; the event is at the first of them.
    """

    metric: str = field(metadata=FILLED)
    below: float | None = None
    above: float | None = None
    of: str = field(default="value", metadata=one_of("value", "first", "best"))
    hold: int = field(default=1, metadata=at_least(1))

    def __post_init__(self) -> None:
        if (self.below is None) == (self.above is None):
            raise RecipeError(f"The event of {self.metric} needs one of below and above.")


@dataclass(frozen=True)
class Statistic:
    """One number for each run.

    Attributes:
        kind: `first`, `metric` at the evaluation before training; `final`, mean of the last `last` values of `metric`
            (of evaluations for held-out ones, for each state); `best`, its highest value; `collapse`, the step of
            `event`, censored at the last step; `correlation`, Spearman's between `metric` and `against` over the steps
            that have both; `lead`, steps from `indicator` to `event` in runs that have both.
        metric: a name in metrics.jsonl.
        last: the number of values in the mean of `final`.
        against: the other metric of `correlation`.
        event: the event of `collapse` and `lead`; None stands for the collapse of `ragen-verl diagnose`.
        indicator: the event of `lead` that should come first.
    """

    kind: str = field(default="final", metadata=one_of("first", "final", "best", "collapse", "correlation", "lead"))
    metric: str | None = None
    last: int = field(default=3, metadata=at_least(1))
    against: str | None = None
    event: Event | None = None
    indicator: Event | None = None

    def __post_init__(self) -> None:
        needed = {"first": ("metric",), "final": ("metric",), "best": ("metric",), "correlation": ("metric", "against"),
                  "collapse": (), "lead": ("indicator",)}[self.kind]  # fmt: skip
        allowed = {*needed, *(("event",) if self.kind in ("collapse", "lead") else ())}
        for key in ("metric", "against", "event", "indicator"):
            if key in needed and getattr(self, key) is None:
                raise RecipeError(f"A statistic of the kind {self.kind} needs {key}.")
            if key not in allowed and getattr(self, key) is not None:
                raise RecipeError(f"A statistic of the kind {self.kind} has no {key}: leave it out.")


@dataclass(frozen=True)
class Comparison:
    """A claim that some variants are higher or lower than others.

    Attributes:
        name: its name in tables.
        first: variants that are compared, each with the one in the same place of `second`; the mean difference counts.
            So `first: [a, d]` against `second: [b, c]` is a difference of differences, half of (a - b) - (c - d).
        second: the variants they are compared with.
        than: a number that is used instead of `second`.
        expected: whether `first` is claimed to be `higher` or `lower`.
        paired: whether runs with the same seed share training and held-out states, so that their difference is taken
            for each state.
        decides: whether the item's verdict depends on it.
        statistic, claim, source: given where they differ from the protocol's.
    """

    name: str = field(metadata=FILLED)
    first: tuple[str, ...] = field(metadata=FILLED)
    second: tuple[str, ...] = ()
    than: float | None = None
    expected: str = field(default="higher", metadata=one_of("higher", "lower"))
    paired: bool = True
    decides: bool = True
    statistic: Statistic | None = None
    claim: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if bool(self.second) == (self.than is not None):
            raise RecipeError(f"The comparison {self.name!r} needs one of second and than.")
        if self.second and len(self.second) != len(self.first):
            raise RecipeError(f"The comparison {self.name!r} has {len(self.first)} and {len(self.second)} variants.")

    @property
    def variants(self) -> tuple[str, ...]:
        """All variants whose runs it needs."""
        return (*self.first, *self.second)


@dataclass(frozen=True)
class Curve:
    """A variant's curve in a paper's figure: values at the steps `start`, `start + every`, ..."""

    variant: str = field(metadata=FILLED)
    panel: str = field(metadata=FILLED)
    values: tuple[float, ...] = field(metadata=FILLED)
    start: int = 0
    every: int = field(default=10, metadata=at_least(1))

    @property
    def points(self) -> list[tuple[int, float]]:
        """(step, value)."""
        return [(self.start + self.every * place, value) for place, value in enumerate(self.values)]


@dataclass(frozen=True)
class Cost:
    """The cost of one run.

    Attributes:
        minutes: minutes on two CPU cores.
        gpu_hours: hours on one GPU.
        how: the machine on which it was measured, or the data from which it was estimated.
    """

    how: str = field(metadata=FILLED)
    minutes: float | None = None
    gpu_hours: float | None = None

    def __post_init__(self) -> None:
        if (self.minutes is None) == (self.gpu_hours is None):
            raise RecipeError("cost needs one of minutes and gpu_hours.")


@dataclass(frozen=True)
class ExperimentProtocol:
    """A question to the runs of a sweep, and the rule that decides it.

    Attributes:
        question: the question, in one sentence.
        claim: the statement in the paper.
        source: the paper, and its figure or table.
        scale: `nano`, for two CPU cores, or `paper`.
        comparisons: the claimed directions. The claim holds if all comparisons that decide are confirmed, and is
            contradicted if one of them is.
        rule: the decision rule in words.
        cost: the cost of one run.
        statistic: the statistic of every comparison that has none of its own.
        least_seeds: with fewer seeds nothing is decided.
        looks: number of seeds -> level, for an experiment that may end before all its seeds have run. It is judged on
            its first seeds, as many as each look says, until one decides. The levels add up to 0.05 at most, so that
            several looks find nothing more often than one (Bonferroni). Empty: see `looks_at`.
        published_is: which statistic the published numbers are.
        noise: panel -> standard deviation of the paper's numbers between runs.
        noise_from: the source of that standard deviation.
        curves: curves digitised from the paper's figure.
        covers: further items that the same runs decide.
        follows: the experiment whose undecided question it asks again, on other seeds.
        pilot: its runs chose settings for others, so that it has no verdict.
        changed: what was changed after a run existed, each with its commit. A result keeps the deciding part of its
            protocol, and a change of that without a new line here is refused.
        finding: what was found, in plain words, for the page; `{0}` stands for the estimate of the first comparison.
        paper: the paper's number.
        limit: what the runs do not show.
    """

    question: str = field(metadata=FILLED)
    claim: str = field(metadata=FILLED)
    source: str = field(metadata=FILLED)
    scale: str = field(metadata=one_of(*SCALES))
    comparisons: tuple[Comparison, ...] = field(metadata=FILLED)
    rule: str = field(metadata=FILLED)
    cost: Cost
    statistic: Statistic = field(default_factory=lambda: Statistic(metric=HELD_OUT_SUCCESS))
    least_seeds: int = field(default=_LEAST_SEEDS, metadata=at_least(_LEAST_SEEDS))
    looks: dict[int, float] = field(default_factory=dict)
    published_is: str = field(default="best", metadata=one_of("best", "final"))
    noise: dict[str, float] = field(default_factory=dict)
    noise_from: str = ""
    curves: tuple[Curve, ...] = ()
    covers: tuple[str, ...] = ()
    follows: str = ""
    pilot: bool = False
    changed: tuple[str, ...] = ()
    finding: str = ""
    paper: str = ""
    limit: str = ""

    def __post_init__(self) -> None:
        names = [one.name for one in self.comparisons]
        if len(set(names)) < len(names):
            raise RecipeError("Two comparisons of a protocol have one name.")
        for one in self.comparisons:
            if self.statistic_of(one).kind == "collapse" and one.than is not None and not 0 < one.than < 1:
                raise RecipeError(
                    f"The comparison {one.name!r} compares the share of runs that collapse with {one.than:g}: set than "
                    "to a number between 0 and 1, such as 0.5."
                )
        if not any(one.decides for one in self.comparisons):
            raise RecipeError("No comparison of a protocol decides: set decides of one to true.")
        if self.looks and (min(self.looks) != self.least_seeds or not 0 < sum(self.looks.values()) <= LEVEL + 1e-9):
            raise RecipeError(f"The first look of a protocol has least_seeds, and their levels add up to {LEVEL}.")
        if bool(self.noise) != bool(self.noise_from):
            raise RecipeError("noise and noise_from of a protocol belong together.")

    def statistic_of(self, comparison: Comparison) -> Statistic:
        """The comparison's own statistic, or the protocol's."""
        return comparison.statistic or self.statistic

    def looks_at(self, seeds: int) -> dict[int, float]:
        """Number of seeds -> level of each look, for a protocol with so many seeds.

        Without declared looks the level is spent in proportion to the seeds (Kim and DeMets 1987, with exponent 1): a
        look at `least_seeds` has the share of 0.05 that its seeds have of all, and the look at all seeds has the rest.
        """
        if self.looks:
            return dict(sorted(self.looks.items()))
        if seeds <= self.least_seeds:
            return {seeds: LEVEL}
        first = LEVEL * self.least_seeds / seeds
        return {self.least_seeds: first, seeds: LEVEL - first}

    def deciding(self, seeds: Sequence[int]) -> dict[str, Any]:
        """What decides, as JSON-able data without defaults, and `changed`: what a result keeps of its protocol."""
        parts = {
            "statistic": _given(self.statistic),
            "comparisons": [{key: x for key, x in _given(one).items() if key in _DECIDING} for one in self.comparisons],
            "least_seeds": self.least_seeds,
            "looks": {str(number): level for number, level in self.looks_at(len(seeds)).items()},
            "pilot": self.pilot,
            "rule": self.rule,
        }
        return {**parts, "seeds": list(seeds), "changed": list(self.changed)}

    def check_unchanged(self, name: str, seeds: Sequence[int], before: Mapping[str, Any]) -> None:
        """Refuse a protocol that decides otherwise than the one of an earlier result and does not say so.

        Args:
            name: the sweep's name.
            seeds: the sweep's.
            before: `deciding` of the protocol by which the result's runs were collected.

        Raises:
            RecipeError: a part differs, and `changed` has no line that it had not then.
        """
        now = self.deciding(seeds)
        if len(now["changed"]) > len(before["changed"]):
            return
        if part := next((key for key in now if key != "changed" and now[key] != before.get(key)), None):
            raise RecipeError(
                f"protocol.{part} of {name} is not what it was when its runs were collected: put it back, or add "
                "a line to protocol.changed that says what was changed, why and in which commit."
            )

    def check(
        self, name: str, seeds: Sequence[int], variants: Collection[str], panels: Collection[str], published: set[str]
    ) -> None:
        """Refuse a protocol that does not fit its sweep.

        Args:
            name: the sweep's name.
            seeds, variants, panels: those of the sweep.
            published: panels with published numbers.

        Raises:
            RecipeError: there are too few seeds, or runs of two seeds can meet the same states; a variant or panel does
                not exist; a panel with published numbers has no noise.
        """
        if len(seeds) < (needed := max(self.looks, default=self.least_seeds)):
            raise RecipeError(f"seeds of {name} are {len(seeds)} and its protocol needs {needed}.")
        for one, other in pairwise(sorted(seeds)):
            if other - one < _SEED_DISTANCE:
                raise RecipeError(
                    f"seeds of {name}: {one} and {other} are {other - one} apart, and runs could meet the same initial "
                    f"states: put seeds {_SEED_DISTANCE} apart."
                )
        used = [
            *(variant for one in self.comparisons for variant in one.variants),
            *(one.variant for one in self.curves),
        ]
        for variant in used:
            if variant not in variants:
                raise RecipeError(f"protocol of {name} names the variant {variant}: {nearest(variant, variants)}")
        for panel in [*self.noise, *(one.panel for one in self.curves)]:
            if panel not in panels:
                raise RecipeError(f"protocol of {name} names the panel {panel}: {nearest(panel, panels)}")
        if missing := sorted(published - set(self.noise)):
            raise RecipeError(
                f"protocol.noise of {name} says nothing of the panel {missing[0]}, which has published numbers."
            )


def _given(one: Any) -> dict[str, Any]:
    """The fields of a block that differ from their defaults, with blocks inside."""
    found = {each.name: getattr(one, each.name) for each in fields(one) if getattr(one, each.name) != each.default}
    return {name: _given(x) if is_dataclass(x) else list(x) if isinstance(x, tuple) else x for name, x in found.items()}
