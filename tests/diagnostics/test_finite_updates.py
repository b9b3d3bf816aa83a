"""Losses and gradients that are no numbers: counted, named, and the end of a run that has nothing else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen_verl.diagnostics.finite import STEPS, FiniteUpdates, NotFiniteError
from ragen_verl.diagnostics.monitor import judge
from ragen_verl.runs.cause import cause

BAD = {"actor/loss": math.nan, "actor/grad_norm": math.inf}
GOOD = {"actor/loss": 0.1, "actor/grad_norm": 1.0}


def lasted(steps: list[dict]) -> int:
    """How many steps a run with these metrics makes."""
    updates = FiniteUpdates()
    for step, metrics in enumerate(steps, start=1):
        updates.see({**metrics, **updates.measure(metrics)})
        try:
            updates.check(step)
        except NotFiniteError:
            return step
    return len(steps)


def test_what_is_no_number_is_counted() -> None:
    measure = FiniteUpdates().measure
    assert measure(GOOD) == {"update/not_finite": 0.0}
    assert measure(BAD) == {"update/not_finite": 2.0}
    assert measure(GOOD | {"critic/loss": -math.inf, "critic/grad_norm": 3.0}) == {"update/not_finite": 1.0}
    assert measure({"timing_s/step": 1.0}) == {}


@given(st.lists(st.sampled_from([True, False, None]), max_size=40))
def test_a_run_ends_after_so_many_steps_in_a_row(bad: list[bool | None]) -> None:
    steps = [{} if one is None else BAD if one else GOOD for one in bad]  # None: the filter left nothing to train on
    row, expected = 0, len(steps)
    for step, one in enumerate(bad, start=1):
        row = row if one is None else row + 1 if one else 0
        if row == STEPS:
            expected = step
            break
    assert lasted(steps) == expected


def test_a_run_of_numbers_never_ends_by_it() -> None:
    assert lasted([BAD] * (STEPS - 1) + [GOOD] + [BAD] * (STEPS - 1)) == 2 * STEPS - 1


def test_the_error_names_what_was_no_number() -> None:
    updates = FiniteUpdates()
    for _ in range(STEPS):
        updates.see({**BAD, **updates.measure(BAD)})
    said = r"^actor/loss and actor/grad_norm were no finite number in 5 .* 7: "
    with pytest.raises(NotFiniteError, match=said) as error:
        updates.check(7)
    text = f"Traceback:\nragen_verl.diagnostics.finite.NotFiniteError: {error.value}\n"
    assert "NotFiniteError: actor/loss" in cause(text)


def test_the_verdict_names_it_at_the_second_step_in_a_row() -> None:
    lines = [{"step": step, "update/not_finite": float(step in (3, 6, 7, 8))} for step in range(1, 12)]
    (finding,) = judge(lines).findings
    assert (finding.cause, finding.step) == ("not_finite", 7) and "learning rate" in finding.advice
