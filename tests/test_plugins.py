"""Options of registered functions: read from the signature, checked against its annotations."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest

from ragen_verl.errors import RecipeError
from ragen_verl.plugins import Accepts, check_options, options_of

SHARE = Accepts(lambda value: 0 < value <= 1, "a number above 0 and at most 1")


def function(
    batch,
    *,
    share: Annotated[float, SHARE] = 0.5,
    part: tuple[float, ...] = (0.0, 1.0),
    mass: Literal["linear", "softmax"] = "linear",
    count: int = 1,
    anything=None,
):
    """Options of every kind."""


def needy(batch, *, count: Annotated[int, Accepts(lambda value: value > 0, "a whole number of 1 or more")]):
    """An option without a default."""


def check(given: dict, of=function) -> dict:
    return check_options(of, given, "ragen.filter", "filter strategy mine")


def test_options_are_the_keyword_only_parameters() -> None:
    assert list(options_of(function)) == ["share", "part", "mass", "count", "anything"]
    assert options_of(function)["count"].default == 1


def test_values_are_converted_and_null_is_left_out() -> None:
    found = check({"share": 1, "part": [0, 25], "mass": "softmax", "count": None, "anything": {"a": 1}})
    assert found == {"share": 1.0, "part": (0.0, 25.0), "mass": "softmax", "anything": {"a": 1}}
    assert isinstance(found["share"], float) and isinstance(found["part"][0], float)
    assert check({"count": 2}, needy) == {"count": 2}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"share": 2}, "ragen.filter.share is 2.0 but has to be a number above 0 and at most 1 or null (filter"),
        ({"share": "half"}, "'half' but has to be a number above 0"),
        ({"share": True}, "True but has to be a number above 0"),
        ({"count": 1.5}, "a whole number or null"),
        ({"count": True}, "a whole number or null"),
        ({"part": 3}, "a list of numbers or null"),
        ({"part": [0, "a"]}, "ragen.filter.part[1] is 'a' but has to be a number or null"),
        ({"mass": "log"}, "one of linear, softmax or null"),
        ({"shar": 1}, "ragen.filter.shar is 1 but filter strategy mine does not read it"),
    ],
)
def test_option_of_another_type_or_outside_its_bounds_is_refused(given: dict, words: str) -> None:
    with pytest.raises(RecipeError) as refusal:
        check(given)
    assert words in str(refusal.value)


def test_option_without_a_default_is_needed() -> None:
    with pytest.raises(RecipeError, match=r"ragen\.filter\.count is missing: filter strategy mine needs it"):
        check({"count": None}, needy)
    with pytest.raises(RecipeError, match=r"a whole number of 1 or more \(filter strategy mine\)"):
        check({"count": 0}, needy)
