"""The advantage estimators by the name that recipes give in `algorithm.adv_estimator`, and the needs of each.

This module does not import torch: the modules of the built-in estimators are imported at the first look-up of a name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragen_verl.errors import RecipeError
from ragen_verl.extensions import Registry, options_of

__all__ = ["ESTIMATORS", "OWN_KEYS", "WEIGHTS", "Estimator", "estimator"]

WEIGHTS = ("none", "length", "turns")
"""Sizes by which `estimate` can divide a trajectory's advantage; every estimator takes them."""

OWN_KEYS = ("weight",)
"""Keys of `ragen.advantage` that are not options of an estimator."""


@dataclass(frozen=True)
class Estimator:
    """An advantage estimator and its needs, which a recipe has to meet.

    Attributes:
        name: the name in recipes.
        function: (AdvantageBatch, **options) -> (advantages, returns), both (rows, T).
        needs_critic: reads a value for every sampled token.
        needs_group: compares the trajectories of a group, so a group of one teaches nothing.
        needs_turns: reads where turns end.
        needs_states: reads the key of the state that each turn started in.
        implies: options that it does not read -> the value that holds in any case; a recipe may state that value.
    """

    name: str
    function: Callable
    needs_critic: bool = False
    needs_group: bool = False
    needs_turns: bool = False
    needs_states: bool = False
    implies: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """Every option that the function reads -> its default, from the signature."""
        return {name: one.default for name, one in options_of(self.function).items()}


ESTIMATORS: Registry[Estimator] = Registry("advantage estimator", home="ragen_verl.advantages")


def estimator(
    name: str,
    *,
    needs_critic: bool = False,
    needs_group: bool = False,
    needs_turns: bool = False,
    needs_states: bool = False,
    implies: Mapping[str, Any] | None = None,
) -> Callable[[Callable], Callable]:
    """Decorator: register a function as the advantage estimator `name` of recipes.

    The function takes an `AdvantageBatch`, and its options as keyword-only parameters with a default. It returns
    advantages and returns (the critic's target where there is a critic, else the advantages once more), (rows, T)
    float32 tensors; their values outside the mask are never read. `gamma`, `lam` and `norm_adv_by_std_in_grpo` are
    verl's keys of the `algorithm` block and have verl's defaults; all other options are keys of `ragen.advantage`.

    Args:
        name: the value of `algorithm.adv_estimator`. The others are the fields of `Estimator`.

    Raises:
        RecipeError: the name is taken, or the function is not of that form.
    """

    def decorate(function: Callable) -> Callable:
        options = options_of(function)
        others = [one for one in inspect.signature(function).parameters.values() if one.name not in options]
        if len(others) != 1 or others[0].kind not in (others[0].POSITIONAL_ONLY, others[0].POSITIONAL_OR_KEYWORD):
            raise RecipeError(
                f"The advantage estimator {name!r} has to take the batch and, behind a `*`, its options by keyword."
            )
        for key, one in options.items():
            if one.default is one.empty:
                raise RecipeError(f"The option {key} of the advantage estimator {name!r} has no default: give it one.")
            if key in OWN_KEYS:
                raise RecipeError(
                    f"The option {key} of the advantage estimator {name!r} is a key that every estimator takes: give "
                    "it another name."
                )
        needs = {"needs_critic": needs_critic, "needs_group": needs_group}
        needs |= {"needs_turns": needs_turns, "needs_states": needs_states}
        ESTIMATORS.add(name, Estimator(name, function, **needs, implies=dict(implies or {})))
        return function

    return decorate
