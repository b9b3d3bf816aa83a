"""`ragen.advantage`: options of the advantage estimators of this package and of plugins for which verl has no key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragen_verl.advantages.registry import ESTIMATORS, OWN_KEYS, WEIGHTS, Estimator
from ragen_verl.config.schema import REST, one_of
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.extensions import check_options

__all__ = ["VERL_OPTIONS", "Advantage"]

# verl's own keys of the algorithm block that estimators read, and verl's defaults
VERL_OPTIONS = {"gamma": 1.0, "lam": 1.0, "norm_adv_by_std_in_grpo": True}
# null in recipes/ragen.yaml; known without the other estimators, which are loaded only to name a key
_SHIPPED = ("turn_gamma", "turn_lam", "value_at_start", "step_weight", "step_gamma")


@dataclass(frozen=True)
class Advantage:
    """Options of the estimator in `algorithm.adv_estimator`.

    Attributes:
        weight: divide a trajectory's advantage by the ratio of its size to the batch's mean size: `none`, `length`
            (sampled tokens) or `turns`. Every estimator takes it.
        options: every other key of the block; null stands for the estimator's default, or for an option it lacks.
    """

    weight: str = field(default="none", metadata=one_of(*WEIGHTS))
    options: dict = field(default_factory=dict, metadata=REST)

    def arguments(self, algorithm: Mapping[str, Any]) -> dict[str, Any]:
        """The options for `ragen_verl.advantages.estimate`, from verl's algorithm block and this one."""
        name = algorithm["adv_estimator"]
        verls = {key: algorithm[key] for key in ESTIMATORS[name].options if key in VERL_OPTIONS}
        own = check_options(ESTIMATORS[name].function, self._given, "ragen.advantage", f"advantage estimator {name}")
        return {**verls, **own, "weight": self.weight}

    def check(
        self, algorithm: Mapping[str, Any], *, critic: bool | None, group_size: int, others: Collection[str] = ()
    ) -> None:
        """Refuse an estimator that does not exist or whose needs are not met, and options that it would not read.

        Args:
            algorithm: verl's algorithm block.
            critic: `critic.enable`; null lets verl decide, which it does by the name `gae`.
            group_size: N, trajectories per group (`actor_rollout_ref.rollout.n`).
            others: names that the key takes as well, for the message about a name that does not exist.

        Raises:
            RecipeError: naming the key to change.
        """
        name = algorithm["adv_estimator"]
        estimator = ESTIMATORS.find(name, "algorithm.adv_estimator", others)
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
        self._check_options(estimator)

    @property
    def _given(self) -> dict[str, Any]:
        return {key: value for key, value in self.options.items() if value is not None}

    def _check_options(self, estimator: Estimator) -> None:
        for key, value in self.options.items():
            if key in VERL_OPTIONS:
                raise RecipeError(f"ragen.advantage.{key} is {value!r} but verl has a key for it: set algorithm.{key}.")
            if key in estimator.options or (value is None and key in _SHIPPED):
                continue
            known = {key for one in ESTIMATORS.values() for key in one.options} - set(VERL_OPTIONS)
            if key not in known:
                raise RecipeError(
                    f"ragen.advantage.{key} is not a key of ragen.advantage: {nearest(key, {*known, *OWN_KEYS})}"
                )
            if value is not None:
                raise RecipeError(_useless(f"ragen.advantage.{key}", value, estimator.name, key, "null"))
        check_options(estimator.function, self._given, "ragen.advantage", f"advantage estimator {estimator.name}")


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
            f"algorithm.adv_estimator {name} compares the trajectories of a group but actor_rollout_ref.rollout.n is "
            f"{group_size}: use 2 or more, or gae."
        )


def _useless(path: str, value: Any, name: str, key: str, default: str) -> str:
    readers = ", ".join(one.name for one in ESTIMATORS.values() if key in one.options)
    return (
        f"{path} is {str(value).lower()} but algorithm.adv_estimator {name} does not read it: "
        f"set it to {default}, or use one of {readers}."
    )
