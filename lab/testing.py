"""A check for the tests of your own environment; it works with any test runner.

    from ragen_lab.testing import check_env

    def test_my_env_keeps_the_rules():
        check_env("MyEnv-v0")

It also takes the class itself, and arguments of the environment: `check_env(MyEnv, size=5)`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ragen_lab.checker import FULL, Profile, Report, Subject, check

from ragen_verl.env.core import Env

__all__ = ["check_env"]


def check_env(
    id_or_class: str | Callable[..., Env], *, profile: Profile = FULL, skip: Collection[str] = (), **kwargs: Any
) -> Report:
    """Fail unless an environment keeps every rule that training relies on, as `ragen-verl env check` does.

    Args:
        id_or_class: an id, a class derived from `ragen_verl.Env` or `gymnasium.Env`, or a callable that returns one.
        profile: how thorough the check is; `ragen_lab.checker.QUICK` takes about a second.
        skip: names of rules that do not apply, as the report shows them.
        kwargs: arguments of the environment.

    Returns:
        The report, with scores, times and numbers of tokens in `facts`.

    Raises:
        AssertionError: naming each broken rule and what breaks it.
        RecipeError: the environment cannot be built.
    """
    __tracebackhide__ = True
    report = check(Subject.of(id_or_class, **kwargs), profile, skip=skip)
    if not report.ok:
        raise AssertionError(str(report))
    return report
