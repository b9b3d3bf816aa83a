"""Check the advantage estimator of a recipe: it is this package's, a plugin's, or one registered only with verl."""

from __future__ import annotations

import inspect
from typing import Any

from omegaconf import DictConfig

from ragen_verl.advantages import ESTIMATORS
from ragen_verl.config.advantage import Advantage
from ragen_verl.errors import RecipeError
from ragen_verl.names import ESTIMATOR
from ragen_verl.validation.verl_source import estimators, registered

__all__ = ["check_estimator"]

_GIVEN = ("token_level_rewards", "response_mask", "index", "config")
"""The keyword arguments with which verl calls an estimator of its registry (trainer/ppo/ray_trainer.py)."""

_KEY = "algorithm.adv_estimator"


def check_estimator(config: DictConfig, advantage: Advantage) -> None:
    """Refuse an estimator that does not exist, that lacks an input, or that would ignore options of the recipe.

    Args:
        config: verl's whole configuration.
        advantage: the block `ragen.advantage`.

    Raises:
        RecipeError: one sentence that names the key and what to change.
    """
    name, n = config.algorithm.adv_estimator, config.actor_rollout_ref.rollout.n
    theirs = {} if name in ESTIMATORS else _verls(name)
    if name not in theirs:
        advantage.check(config.algorithm, critic=config.critic.enable, group_size=n, others=theirs)
        return
    try:
        inspect.signature(theirs[name]).bind(**dict.fromkeys(_GIVEN))
    except TypeError as error:
        raise RecipeError(
            f"{_KEY} {name} is registered with verl, which calls it with {', '.join(_GIVEN)}: {error}."
        ) from None
    for key, value in {"weight": advantage.weight, **advantage.options}.items():
        if value not in (None, "none"):
            raise RecipeError(
                f"ragen.advantage.{key} is {value!r} but {_KEY} {name} is registered with verl, which does not hand it "
                "over: leave it out."
            )
    if config.critic.enable:
        raise RecipeError(
            f"critic.enable is true but {_KEY} {name} is registered with verl, which does not hand it the values: set "
            "critic.enable=false, or use gae."
        )


def _verls(name: str) -> dict[str, Any]:
    """Name -> function in verl's registry, with those that plugins added; the names alone where `name` is not in it.

    Functions need verl's import, which takes many seconds: a name that neither verl's source nor a plugin that has
    imported verl knows is refused without it.
    """
    known = {*estimators(), *registered("ADV_ESTIMATOR_REGISTRY")} - {ESTIMATOR}
    if name not in known:
        return dict.fromkeys(sorted(known))
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    return {name: function for name, function in ADV_ESTIMATOR_REGISTRY.items() if name != ESTIMATOR}
