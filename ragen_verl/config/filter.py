"""`ragen.filter`: which groups of a step the update sees."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragen_verl.config.schema import FRACTION, one_of
from ragen_verl.errors import RecipeError
from ragen_verl.filter import DEFAULT_FRACTION, STRATEGIES


@dataclass(frozen=True)
class Filter:
    """Which groups of a step the update sees; `value` belongs to the strategy and is null without one."""

    strategy: str = field(default="none", metadata=one_of("none", *STRATEGIES))
    value: float | None = field(default=None, metadata=FRACTION)

    def __post_init__(self) -> None:
        if self.strategy == "none" and self.value is not None:
            raise RecipeError(
                f"ragen.filter.value is {self.value} but ragen.filter.strategy is none, so it would do nothing: "
                "set the value to null, or the strategy to top_k."
            )

    @property
    def on(self) -> bool:
        """Whether any group can be dropped."""
        return self.strategy != "none"

    @property
    def fraction(self) -> float:
        """The fraction of groups that is kept: all of them without a filter, 0.25 unless the recipe says otherwise."""
        if not self.on:
            return 1.0
        return DEFAULT_FRACTION if self.value is None else self.value
