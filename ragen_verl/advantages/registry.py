"""The estimators by the name that recipes give in `algorithm.adv_estimator`, and what each of them needs.

No torch here: recipes are checked before anything heavy is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module

WEIGHTS = ("none", "length", "turns")
"""Sizes by which `estimate` can divide a trajectory's advantage; every estimator takes them."""


@dataclass(frozen=True)
class Estimator:
    """What is known of an estimator without running it.

    Attributes:
        module: the module of this package with a function of the estimator's name.
        name: the name in recipes.
        description: one line for people.
        needs_critic: reads a value for every sampled token.
        needs_group: compares the trajectories of a group, so a group of one teaches nothing.
        needs_turns: reads where turns end.
        needs_states: reads the key of the state that each turn started in.
        options: every option that it reads -> the default; keyword arguments of the function.
        implies: options that it does not read -> what it does in any case, so that a recipe can say so.
    """

    module: str
    name: str
    description: str
    needs_critic: bool = False
    needs_group: bool = False
    needs_turns: bool = False
    needs_states: bool = False
    options: Mapping[str, float | bool] = field(default_factory=dict)
    implies: Mapping[str, bool] = field(default_factory=dict)

    @property
    def function(self) -> Callable:
        """(AdvantageBatch, **options) -> (advantages, returns); imports torch."""
        return getattr(import_module(f"ragen_verl.advantages.{self.module}"), self.name)


_BY_STD = {"norm_adv_by_std_in_grpo": True}

ESTIMATORS: dict[str, Estimator] = {
    one.name: one
    for one in (
        Estimator(
            "gae",
            "gae",
            "GAE over the sampled tokens of the whole trajectory",
            needs_critic=True,
            options={"gamma": 1.0, "lam": 1.0},
        ),
        Estimator(
            "gae",
            "turn_gae",
            "GAE over turns: one value and one advantage per turn",
            needs_critic=True,
            needs_turns=True,
            options={"turn_gamma": 1.0, "turn_lam": 1.0},
        ),
        Estimator(
            "gae",
            "bi_level_gae",
            "GAE over turns, then over the tokens inside each turn",
            needs_critic=True,
            needs_turns=True,
            options={"gamma": 1.0, "lam": 1.0, "turn_gamma": 0.95, "turn_lam": 1.0},
        ),
        Estimator("outcome", "grpo", "return against the group's mean and spread", needs_group=True, options=_BY_STD),
        Estimator(
            "outcome",
            "dr_grpo",
            "return against the group's mean, not divided by its spread",
            needs_group=True,
            implies={"norm_adv_by_std_in_grpo": False},
        ),
        Estimator("outcome", "rloo", "return against the mean of the group's other members", needs_group=True),
        Estimator(
            "outcome",
            "reinforce_plus_plus",
            "discounted token returns, whitened over the batch",
            options={"gamma": 1.0},
        ),
        Estimator(
            "outcome",
            "reinforce_plus_plus_baseline",
            "return against the group's mean, whitened over the batch",
            needs_group=True,
        ),
        Estimator(
            "turn",
            "gigpo",
            "grpo plus a comparison of all turns that started in the same state",
            needs_group=True,
            needs_turns=True,
            needs_states=True,
            options={**_BY_STD, "step_weight": 1.0, "step_gamma": 0.95},
        ),
        Estimator(
            "turn",
            "turn_grpo",
            "return from each turn on against the group at the same turn",
            needs_group=True,
            needs_turns=True,
            options={**_BY_STD, "turn_gamma": 1.0},
        ),
    )
}
