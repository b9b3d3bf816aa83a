"""`ragen.filter`: which groups of a step the update sees, and what happens where too few are left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ragen_verl.config.schema import POSITIVE, at_least, one_of
from ragen_verl.errors import RecipeError
from ragen_verl.filter import SCORES, SELECTORS, SPREADS, Rule, keep_count
from ragen_verl.filter.scores import ENTROPY

FRACTION, COUNT = "a number above 0 and at most 1", "a whole number of 1 or more"

# strategy -> what its value is, and the value a null stands for; strategies that are not here take none
VALUES: dict[str, tuple[str, float | None]] = {
    "top_k": (FRACTION, 0.25),  # StarPO-S
    "top_k_count": (COUNT, None),
    "top_p": (FRACTION, 0.9),  # RAGEN-2
    "min_p": (FRACTION, None),
    "within_group": (FRACTION, 0.5),  # RAGEN-2, table 7
}
RANKED = tuple(name for name in SELECTORS if name not in ("none", "within_group"))
FILTERS = tuple(name for name in SELECTORS if name != "none")

STOP_AFTER = 5  # RAGEN-2's rollout_filter_empty_stop_steps


@dataclass(frozen=True)
class Filter:
    """Which groups of a step the update sees. A key that the rest of the block does not use is null.

    `value`, `range`, `mass`, `temperature`, `score` and `largest` belong to strategies, `refill_groups` and
    `refill_limit` to `on_empty: refill`, `stop_after` to `on_empty: stop` or `refill`.
    """

    strategy: str = field(default="none", metadata=one_of(*SELECTORS))
    value: float | None = None
    range: tuple[float, ...] | None = None
    score: str | None = field(default=None, metadata=one_of(*SCORES))
    largest: bool | None = None
    mass: str | None = field(default=None, metadata=one_of("linear", "softmax"))
    temperature: float | None = field(default=None, metadata=POSITIVE)
    zero_variance: str | None = field(default=None, metadata=one_of("keep", "drop"))
    loss_scaling: str = field(default="none", metadata=one_of("none", "linear", "sqrt"))
    updates: str = field(default="proportional", metadata=one_of("proportional", "constant"))
    on_empty: str = field(default="skip", metadata=one_of("skip", "refill", "stop"))
    refill_groups: int | None = field(default=None, metadata=at_least(1))
    refill_limit: int | None = field(default=None, metadata=at_least(1))
    stop_after: int | None = field(default=None, metadata=at_least(1))

    def __post_init__(self) -> None:
        self._check_value()
        self._check_range()
        users = {
            "score": ("strategy", self.strategy, RANKED),
            "largest": ("strategy", self.strategy, RANKED),
            "mass": ("strategy", self.strategy, ("top_p",)),
            "temperature": ("mass", self.mass, ("softmax",)),
            "refill_groups": ("on_empty", self.on_empty, ("refill",)),
            "refill_limit": ("on_empty", self.on_empty, ("refill",)),
            "stop_after": ("on_empty", self.on_empty, ("stop", "refill")),
        }
        for key, (owner, chosen, wanted) in users.items():
            if getattr(self, key) is not None and chosen not in wanted:
                _refuse_unused(key, getattr(self, key), owner, chosen, wanted)
        if self.loss_scaling != "none" and not (self.on or self.drops_zero_variance):
            _refuse_unused("loss_scaling", self.loss_scaling, "strategy", self.strategy, FILTERS, "none")
        if self.on_empty == "stop" and not self.drops_zero_variance:
            raise RecipeError(
                "ragen.filter.on_empty is stop but a filter that keeps groups without a spread of returns always "
                "leaves one: set ragen.filter.zero_variance to drop, or on_empty to skip."
            )
        if self.refills and self.zero_variance == "keep":
            raise RecipeError(
                "ragen.filter.on_empty is refill, which replaces the groups without a spread of returns, but "
                "ragen.filter.zero_variance is keep: set it to drop or null."
            )
        if self.strategy == "min_p" and SCORES[self.score or "std"].signed:
            raise RecipeError(
                f"ragen.filter.strategy min_p compares shares of the best score, and ragen.filter.score {self.score} "
                "can be negative: use std, variance, entropy, entropy_variance or length, or another strategy."
            )

    def _check_value(self) -> None:
        if self.strategy not in VALUES:
            if self.value is not None:
                _refuse_unused("value", self.value, "strategy", self.strategy, tuple(VALUES))
            return
        words, default = VALUES[self.strategy]
        if self.value is None and default is not None:
            return
        legal = self.value is not None and self.value > 0
        legal = legal and (self.value == int(self.value) if words == COUNT else self.value <= 1)
        if not legal:
            or_null = "" if default is None else " or null"
            raise RecipeError(
                f"ragen.filter.value is {self.value!r} but has to be {words}{or_null} "
                f"(ragen.filter.strategy is {self.strategy})."
            )

    def _check_range(self) -> None:
        if self.strategy != "percentile":
            if self.range is not None:
                _refuse_unused("range", list(self.range), "strategy", self.strategy, ("percentile",))
        elif self.range is None or len(self.range) != 2 or not 0 <= self.range[0] < self.range[1] <= 100:
            shown = None if self.range is None else list(self.range)
            raise RecipeError(
                f"ragen.filter.range is {shown!r} but has to be two numbers from 0 to 100, the lower one first, such "
                "as [0, 25] (ragen.filter.strategy is percentile)."
            )

    @property
    def on(self) -> bool:
        """Whether a strategy is chosen."""
        return self.strategy != "none"

    @property
    def refills(self) -> bool:
        """Whether groups without a spread of returns are replaced by new ones."""
        return self.on_empty == "refill"

    @property
    def drops_zero_variance(self) -> bool:
        """Whether groups without a spread of returns are no candidates."""
        return self.refills or self.zero_variance == "drop"

    @property
    def needs_spread(self) -> bool:
        """Whether a group of one would leave nothing to decide by."""
        ranks = self.strategy in RANKED and (self.score or "std") in SPREADS
        return ranks or self.strategy == "within_group" or self.drops_zero_variance

    @property
    def needs_entropy(self) -> bool:
        """Whether the score is made of log-probabilities of the engine."""
        return self.strategy in RANKED and SCORES[self.score or "std"].measure == ENTROPY

    @property
    def empty_limit(self) -> int | None:
        """The run ends after this many steps in a row without a group to train on; None: it never does."""
        return self.stop_after or (STOP_AFTER if self.on_empty == "stop" else None)

    @property
    def number(self) -> float | None:
        """The strategy's value, the default included; None where it has none."""
        return self.value if self.value is not None else VALUES.get(self.strategy, ("", None))[1]

    def rule(self, groups: int, group_size: int) -> Rule:
        """The rule that these keys describe.

        Args:
            groups: P, groups of a step before any refill.
            group_size: N, trajectories per group.
        """
        given: dict[str, Any] = {} if self.number is None else {"value": self.number}
        if self.range is not None:
            given["range"] = tuple(self.range)
        return Rule(
            strategy=self.strategy,
            score=self.score or "std",
            largest=self.largest is not False,
            drop_zero_variance=self.drops_zero_variance,
            softmax=self.mass == "softmax",
            temperature=self.temperature or 1.0,
            min_members=min(2, group_size),
            limit=self.target(groups) if self.refills else None,
            **given,
        )

    def target(self, groups: int) -> int:
        """Groups with a spread of returns that a refilled step should have: P unless the recipe says otherwise."""
        return self.refill_groups or groups

    def extra_groups(self, groups: int) -> int:
        """Groups that a step may generate on top of its P: as many again unless the recipe says otherwise."""
        return (self.refill_limit or groups) if self.refills else 0

    def least_kept(self, groups: int) -> int:
        """Groups that are kept where every group is a candidate; for `top_p` and `min_p` at least one."""
        if self.strategy == "top_k":
            return keep_count(self.number, groups)
        if self.strategy == "top_k_count":
            return min(int(self.number), groups)
        return 1 if self.strategy in RANKED else groups


def _refuse_unused(key: str, value: Any, owner: str, chosen: Any, wanted: tuple, unused: str = "null") -> None:
    raise RecipeError(
        f"ragen.filter.{key} is {value!r} but ragen.filter.{owner} is {'null' if chosen is None else chosen}, so it "
        f"would do nothing: set it to {unused}, or ragen.filter.{owner} to {_or(wanted)}."
    )


def _or(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
