"""`ragen.advantage`: what the advantage estimators of this package take and verl has no key for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ragen_verl.advantages.registry import ESTIMATORS, WEIGHTS, Estimator
from ragen_verl.config.schema import Accepts, at_least, nearest, one_of
from ragen_verl.errors import RecipeError

UNIT = {"accepts": Accepts(lambda value: 0 <= value <= 1, "a number from 0 to 1")}

# verl's own keys of the algorithm block that estimators read, and verl's defaults
VERL_OPTIONS = {"gamma": 1.0, "lam": 1.0, "norm_adv_by_std_in_grpo": True}


@dataclass(frozen=True)
class Advantage:
    """Options of the estimator in `algorithm.adv_estimator`; null is its own default, or that it has no such option.

    Attributes:
        turn_gamma: discount per turn.
        turn_lam: lambda of the GAE over turns.
        step_weight: GiGPO's omega, the weight of its comparison of turns.
        step_gamma: GiGPO's discount per turn.
        weight: divide a trajectory's advantage by its size over the batch's mean size: `none`, `length` (sampled
            tokens) or `turns`. For every estimator.
    """

    turn_gamma: float | None = field(default=None, metadata=UNIT)
    turn_lam: float | None = field(default=None, metadata=UNIT)
    step_weight: float | None = field(default=None, metadata=at_least(0))
    step_gamma: float | None = field(default=None, metadata=UNIT)
    weight: str = field(default="none", metadata=one_of(*WEIGHTS))

    def options(self, algorithm: Mapping[str, Any]) -> dict[str, Any]:
        """What `ragen_verl.advantages.estimate` takes, from verl's algorithm block and this one."""
        read = ESTIMATORS[algorithm["adv_estimator"]].options
        chosen = {key: algorithm[key] for key in read if key in VERL_OPTIONS}
        chosen |= {key: getattr(self, key) for key in read if getattr(self, key, None) is not None}
        return {**chosen, "weight": self.weight}

    def check(self, algorithm: Mapping[str, Any], *, critic: bool | None, group_size: int) -> None:
        """Refuse an estimator that does not exist or lacks what it needs, and options that it would not read.

        Args:
            algorithm: verl's algorithm block.
            critic: `critic.enable`; null lets verl decide, which it does by the name `gae`.
            group_size: N, trajectories per group (`actor_rollout_ref.rollout.n`).

        Raises:
            RecipeError: naming the key to change.
        """
        name = algorithm["adv_estimator"]
        estimator = ESTIMATORS.get(name)
        if estimator is None:
            raise RecipeError(
                f"algorithm.adv_estimator is {name!r}, which is no estimator of ragen_verl: {nearest(name, ESTIMATORS)}"
            )
        _check_needs(estimator, critic, group_size)
        if algorithm.get("use_pf_ppo"):
            raise RecipeError(
                "algorithm.use_pf_ppo belongs to verl's own gae, which is not used here: set it to false."
            )
        for key, default in VERL_OPTIONS.items():
            value = algorithm[key]
            if isinstance(default, float) and (not isinstance(value, int | float) or not 0 <= value <= 1):
                raise RecipeError(f"algorithm.{key} is {value!r} but has to be a number from 0 to 1.")
            if key not in estimator.options and value not in (default, estimator.implies.get(key, default)):
                raise RecipeError(_useless(f"algorithm.{key}", value, name, key, str(default).lower()))
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name != "weight" and value is not None and one.name not in estimator.options:
                raise RecipeError(_useless(f"ragen.advantage.{one.name}", value, name, one.name, "null"))


def _check_needs(estimator: Estimator, critic: bool | None, group_size: int) -> None:
    name = estimator.name
    if estimator.needs_critic and not (critic or (critic is None and name == "gae")):
        off = "false" if critic is False else "null, which verl takes for false with any estimator but gae"
        raise RecipeError(
            f"algorithm.adv_estimator {name} needs values but critic.enable is {off}: set it to true, or use grpo."
        )
    if critic and not estimator.needs_critic:
        raise RecipeError(
            f"critic.enable is true but algorithm.adv_estimator {name} ignores its values: "
            "set critic.enable=false, or use gae."
        )
    if estimator.needs_group and group_size < 2:
        raise RecipeError(
            f"algorithm.adv_estimator {name} compares the members of a group but actor_rollout_ref.rollout.n is "
            f"{group_size}: use 2 or more, or gae."
        )


def _useless(path: str, value: Any, name: str, key: str, default: str) -> str:
    readers = ", ".join(one.name for one in ESTIMATORS.values() if key in one.options)
    return (
        f"{path} is {str(value).lower()} but algorithm.adv_estimator {name} does not read it: "
        f"set it to {default}, or use one of {readers}."
    )
