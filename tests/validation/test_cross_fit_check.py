"""Cross-fitting and what the rest of the recipe has to be for it."""

from __future__ import annotations

import pytest
from recipe_composition import composed

from ragen_verl.errors import RecipeError
from ragen_verl.validation.recipe import check

CROSS_FIT = ("algorithm=starpo_s", "ragen.filter.cross_fit=true")


def test_cross_fitted_bandit_passes_every_check() -> None:
    assert check(composed("nano/bandit", *CROSS_FIT)).filter.rule(16, 8).cross_fit


def test_small_groups_and_verls_own_estimators_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"cross_fit compares the trajectories of half a group .*rollout\.n is 3"):
        check(composed("nano/bandit", *CROSS_FIT, "actor_rollout_ref.rollout.n=3"))
    with pytest.raises(RecipeError, match=r"cross_fit needs baselines within half a group, and .* opo is verl's"):
        check(composed("nano/bandit", *CROSS_FIT, "algorithm.adv_estimator=opo", "critic.enable=false"))
