"""With cross-fitting the halves of a group are groups of their own to the estimators."""

from __future__ import annotations

from dataclasses import fields

import pytest

from ragen_verl.training import advantages as join

KEYS = ["u-1_0_0", "u-1_1_0", "pad00_0_0", "u-1_2_0", "u-1_3_0", "u-1_1_1", "u-2_0_0"]


@pytest.mark.parametrize(("wanted", "groups"), [(True, [0, 1, 2, 0, 1, 1, 3]), (False, [0, 0, 1, 0, 0, 0, 2])])
def test_halves_are_groups_where_cross_fitting_is_on(wanted: bool, groups: list) -> None:
    context = join.Context(**{**{one.name: None for one in fields(join.Context)}, "keys": KEYS})
    with join.using(context), join.halves_as_groups(wanted):
        found = join.indices(join._CONTEXT.get().keys)
    assert [one.tolist() for one in found] == [groups, [0, 1, 2, 3, 4, 1, 5], [0, 0, 0, 0, 0, 1, 0]]


def test_estimators_of_verl_are_left_alone() -> None:
    with join.halves_as_groups(True):
        assert join._CONTEXT.get() is None
