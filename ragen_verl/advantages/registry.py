"""The advantage estimators by the name that recipes give in `algorithm.adv_estimator`, and what each of them needs.

No torch here: the modules with the built-in estimators are imported when a name is first asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragen_verl.errors import RecipeError
from ragen_verl.plugins import Registry, options_of

WEIGHTS = ("none", "length", "turns")
"""Sizes by which `estimate` can divide a trajectory's advantage; every estimator takes them."""

OWN_KEYS = ("weight",)
"""Keys of `ragen.advantage` that are not options of an estimator."""


@dataclass(frozen=True)
class Estimator:
    """An advantage estimator and what it needs of a recipe.

    Attributes:
        name: the name in recipes.
        function: (AdvantageBatch, **options) -> (advantages, returns), both (rows, T).
        needs_critic: reads a value for every sampled token.
        needs_group: compares the trajectories of a group, so a group of one teaches nothing.
        needs_turns: reads where turns end.
        needs_states: reads the key of the state that each turn started in.
        implies: options that it does not read -> what it does in any case, so that a recipe can say so.
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
    """Decorator: the function is the advantage estimator `name` of recipes.

    The function takes an `AdvantageBatch`, and its options as keyword-only parameters with a default. It returns
    advantages and returns (the critic's target where there is a critic, else the advantages once more), (rows, T)
    float32 tensors; what it puts outside the mask is never read. `gamma`, `lam` and `norm_adv_by_std_in_grpo` are
    verl's keys of the `algorithm` block, whose defaults hold for them; all others are keys of `ragen.advantage`.

    Args:
        name: what `algorithm.adv_estimator` says.
        needs_critic, needs_group, needs_turns, needs_states, implies: see `Estimator`.

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
