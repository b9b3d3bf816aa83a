"""`ragen.rewards`: the weight of the environment's reward, and the rewards that are added to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

from ragen_verl.config.schema import FINITE, REST
from ragen_verl.errors import RecipeError
from ragen_verl.extensions import check_options
from ragen_verl.rollout.reward import ENVIRONMENT, REWARDS, Rewards
from ragen_verl.values import checked

__all__ = ["RewardBlocks"]


@dataclass(frozen=True)
class RewardBlocks:
    """What an episode is rewarded for.

    Attributes:
        environment: the weight of the environment's own reward; with 0 the other rewards replace it.
        options: every other key: the name of a reward -> its options and its `weight` (1 if it is left out); null
            stands for a reward that is not used.
    """

    environment: float = field(default=1.0, metadata=FINITE)
    options: dict = field(default_factory=dict, metadata=REST)

    def __post_init__(self) -> None:
        if not self.chosen.functions and not self.environment:
            raise RecipeError(
                "ragen.rewards.environment is 0 and ragen.rewards names no other reward, so that nothing is rewarded: "
                "name one, or leave it out."
            )

    @cached_property
    def chosen(self) -> Rewards:
        """The weights and functions, with checked options."""
        functions = {}
        for name, block in self.options.items():
            function = REWARDS.find(name, "A key of ragen.rewards", {ENVIRONMENT})
            if block is None:
                continue
            path = f"ragen.rewards.{name}"
            if not isinstance(block, Mapping):
                raise RecipeError(f"{path} is {block!r} but has to be a block of options, such as {{weight: 1.0}}.")
            given = dict(block)
            weight = checked(float, given.pop("weight", 1.0), f"{path}.weight", FINITE["accepts"])
            functions[name] = weight, partial(function, **check_options(function, given, path, f"the reward {name}"))
        return Rewards(self.environment, functions)
