"""`ragen.filter`: which groups of a step are used for the update, and what happens if too few are left."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from ragen_verl.config.schema import REST, at_least, one_of
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.extensions import check_options, options_of
from ragen_verl.filter import SCORES, STRATEGIES, Rule, keep_count
from ragen_verl.filter.registry import ENTROPY, read_by

__all__ = ["Filter"]

_STOP_AFTER = 5  # RAGEN-2's rollout_filter_empty_stop_steps


@dataclass(frozen=True)
class Filter:
    """The choice of the groups that are used for the update. A key that has no effect with the others has to be null.

    `score` and `largest` belong to strategies that rank groups, `dynamic_sampling_groups` and `dynamic_sampling_limit`
    to `on_empty: dynamic_sampling`, `stop_after` to `on_empty: stop` or `dynamic_sampling`; every other key is an
    option of the strategy or of the score.
    """

    strategy: str = "none"
    score: str | None = None
    largest: bool | None = None
    zero_variance: str | None = field(default=None, metadata=one_of("keep", "drop"))
    cross_fit: bool = False
    loss_scaling: str = field(default="none", metadata=one_of("none", "linear", "sqrt"))
    updates: str = field(default="proportional", metadata=one_of("proportional", "constant"))
    on_empty: str = field(default="skip", metadata=one_of("skip", "dynamic_sampling", "stop"))
    dynamic_sampling_groups: int | None = field(default=None, metadata=at_least(1))
    dynamic_sampling_limit: int | None = field(default=None, metadata=at_least(1))
    stop_after: int | None = field(default=None, metadata=at_least(1))
    options: dict = field(default_factory=dict, metadata=REST)

    def __post_init__(self) -> None:
        chosen = STRATEGIES.find(self.strategy, "ragen.filter.strategy")
        score = SCORES.find(self.score or "std", "ragen.filter.score")
        ranking = tuple(name for name, one in STRATEGIES.items() if one.ranks)
        users = {
            "score": ("strategy", self.strategy, ranking),
            "largest": ("strategy", self.strategy, ranking),
            "dynamic_sampling_groups": ("on_empty", self.on_empty, ("dynamic_sampling",)),
            "dynamic_sampling_limit": ("on_empty", self.on_empty, ("dynamic_sampling",)),
            "stop_after": ("on_empty", self.on_empty, ("stop", "dynamic_sampling")),
        }
        for key, (owner, value, wanted) in users.items():
            if getattr(self, key) is not None and value not in wanted:
                _refuse_unused(key, getattr(self, key), owner, value, wanted)
        if self.loss_scaling != "none" and not (self.on or self.drops_zero_variance):
            filters = tuple(name for name in STRATEGIES if name != "none")
            _refuse_unused("loss_scaling", self.loss_scaling, "strategy", self.strategy, filters, "none")
        self._check_options()
        if self.on_empty == "stop" and not (self.drops_zero_variance or chosen.can_be_empty):
            raise RecipeError(
                "ragen.filter.on_empty is stop but a filter that keeps groups of equal returns always leaves one: set "
                "ragen.filter.zero_variance to drop, or on_empty to skip."
            )
        if self.dynamic_sampling and self.zero_variance == "keep":
            raise RecipeError(
                "ragen.filter.on_empty is dynamic_sampling, which replaces the groups of equal returns, but "
                "ragen.filter.zero_variance is keep: set it to drop or null."
            )
        if chosen.shares and score.signed:
            legal = ", ".join(name for name, one in SCORES.items() if not one.signed)
            raise RecipeError(
                f"ragen.filter.strategy {self.strategy} compares shares of the best score, and ragen.filter.score "
                f"{self.score} can be negative: use one of {legal}, or another strategy."
            )
        if self.cross_fit:
            self._check_cross_fit()

    def _check_options(self) -> None:
        functions = self._functions
        for key, value in self.options.items():
            if any(key in options_of(function) for function in functions.values()):
                continue
            readers = [name for name, one in STRATEGIES.items() if key in options_of(one.function)]
            scores = [name for name, one in SCORES.items() if key in options_of(one.function)]
            if readers or scores:
                if value is not None:
                    owner, chosen = ("strategy", self.strategy) if readers else ("score", self.score)
                    _refuse_unused(key, value, owner, chosen, tuple(readers or scores))
                continue
            known = [one.name for one in fields(self) if one.name != "options"]
            known += [option for function in functions.values() for option in options_of(function)]
            raise RecipeError(f"ragen.filter.{key} is not a key of ragen.filter: {nearest(key, known)}")
        self.all_options()  # refuses values of a wrong type or out of bounds
        if check := STRATEGIES[self.strategy].check:
            check({key: value for key, value in self.options.items() if value is not None})

    def _check_cross_fit(self) -> None:
        if STRATEGIES[self.strategy].selects == "trajectories":
            raise RecipeError(
                f"ragen.filter.cross_fit keeps whole halves of groups but ragen.filter.strategy {self.strategy} "
                "chooses single trajectories: use another strategy, or set cross_fit to false."
            )
        if not (self.on or self.drops_zero_variance):
            raise RecipeError(
                "ragen.filter.cross_fit is true but nothing is filtered, so it would do nothing: choose a "
                "ragen.filter.strategy, or set it to false."
            )
        if self.dynamic_sampling:
            raise RecipeError(
                "ragen.filter.cross_fit chooses each half of a group by the other half alone, and "
                "ragen.filter.on_empty dynamic_sampling continues until whole groups differ: set on_empty to skip or "
                "stop, or cross_fit to false."
            )

    @property
    def _functions(self) -> dict[str, Any]:
        """The functions that read options, under their names in messages."""
        found = {f"filter strategy {self.strategy}": STRATEGIES[self.strategy].function}
        if STRATEGIES[self.strategy].ranks:
            name = self.score or "std"
            found[f"filter score {name}"] = SCORES[name].function
        return found

    def all_options(self) -> dict[str, Any]:
        """Every option of the strategy and the score with its value, the default where the recipe has none."""
        found: dict[str, Any] = {}
        for owner, function in self._functions.items():
            given = check_options(function, read_by(function, self.options), "ragen.filter", owner)
            found |= {key: one.default for key, one in options_of(function).items()} | given
        return found

    @property
    def on(self) -> bool:
        """Whether a strategy is chosen."""
        return self.strategy != "none"

    @property
    def dynamic_sampling(self) -> bool:
        """Whether groups of equal returns are replaced by new ones."""
        return self.on_empty == "dynamic_sampling"

    @property
    def drops_zero_variance(self) -> bool:
        """Whether groups of equal returns are excluded from the candidates."""
        return self.dynamic_sampling or self.zero_variance == "drop"

    @property
    def compares_trajectories(self) -> bool:
        """Whether the filter needs more than one trajectory in a group."""
        chosen = STRATEGIES[self.strategy]
        least = SCORES[self.score or "std"].least if chosen.ranks else chosen.least if self.on else 1
        return least > 1 or self.drops_zero_variance

    @property
    def needs_entropy(self) -> bool:
        """Whether the score is computed from log-probabilities of the engine."""
        return STRATEGIES[self.strategy].ranks and SCORES[self.score or "std"].measure == ENTROPY

    @property
    def empty_limit(self) -> int | None:
        """The run ends after this many consecutive steps without a group to train on; None: it never does."""
        return self.stop_after or (_STOP_AFTER if self.on_empty == "stop" else None)

    def rule(self, groups: int, group_size: int) -> Rule:
        """The rule that these keys describe.

        Args:
            groups: P, groups of a step before any dynamic sampling.
            group_size: N, trajectories per group.
        """
        return Rule(
            strategy=self.strategy,
            options=self.all_options(),
            score=self.score or "std",
            largest=self.largest is not False,
            drop_zero_variance=self.drops_zero_variance,
            min_trajectories=min(2, group_size),
            total=groups,
            limit=self.target(groups) if self.dynamic_sampling else None,
            cross_fit=self.cross_fit,
        )

    def target(self, groups: int) -> int:
        """How many groups with different returns dynamic sampling aims at: P unless the recipe says otherwise."""
        return self.dynamic_sampling_groups or groups

    def extra_groups(self, groups: int) -> int:
        """How many groups a step may generate in addition to its P: P more unless the recipe says otherwise."""
        return (self.dynamic_sampling_limit or groups) if self.dynamic_sampling else 0

    def least_kept(self, groups: int) -> int:
        """The least number of groups that are kept if all are candidates; 1 where it depends on the scores."""
        if self.strategy == "top_k":
            return keep_count(self.all_options()["value"], groups)
        if self.strategy == "top_k_count":
            return min(self.all_options()["value"], groups)
        return 1 if STRATEGIES[self.strategy].ranks else groups


def _refuse_unused(key: str, value: Any, owner: str, chosen: Any, wanted: tuple, unused: str = "null") -> None:
    raise RecipeError(
        f"ragen.filter.{key} is {value!r} but ragen.filter.{owner} is {'null' if chosen is None else chosen}, so it "
        f"would do nothing: set it to {unused}, or ragen.filter.{owner} to {_or(wanted)}."
    )


def _or(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
