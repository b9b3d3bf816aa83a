"""`check`: one environment against every rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial

from ragen_lab.checker.calls import Broken, Calls
from ragen_lab.checker.case import Case, Unchecked
from ragen_lab.checker.costs import NANO
from ragen_lab.checker.profile import FULL, Profile
from ragen_lab.checker.report import Report, Verdict
from ragen_lab.checker.rules import IN_CALLS, ONE_THREAD, RULES
from ragen_lab.checker.subject import Subject

from ragen_verl.errors import RecipeError

__all__ = ["check"]


def check(
    subject: Subject,
    profile: Profile = FULL,
    *,
    skip: Collection[str] = (),
    tokenizer: str = NANO,
    backstop: bool = False,
    progress: Callable[[str, int], None] = lambda rule, calls: None,
) -> Report:
    """Check an environment against every rule and measure it.

    Args:
        subject: the environment.
        profile: how thorough the check is.
        skip: names of rules that are not checked.
        tokenizer: counts the tokens of observations, see `measure.load_tokenizer`.
        backstop: end the process, with the stack on stderr, if a call hangs and blocks the interpreter.
        progress: called before each rule and then about five times a second, with the rule's name and the number of
            calls of the environment so far.

    Returns:
        The report. A call that hangs ends the check, and the remaining rules are not checked.

    Raises:
        RecipeError: the environment cannot be built with these arguments, or a name in `skip` is no rule.
    """
    names = [*IN_CALLS, *RULES]
    if unknown := sorted(set(skip) - set(names)):
        raise RecipeError(f"There is no rule {unknown[0]!r} to skip; the rules are {', '.join(names)}.")
    report = Report(subject.label, dict(subject.kwargs), {name: Verdict() for name in names})
    case = Case(subject, profile, Calls(profile.limit, backstop), notes=report.notes, tokenizer=tokenizer)
    _build(case)
    for name in RULES:
        case.calls.progress = partial(progress, name)
        progress(name, case.calls.made)
        if name in skip:
            report.rules[name].unchecked = "skipped"
        elif not _part(name, case, report, skip):
            for left in list(RULES)[list(RULES).index(name) :]:
                report.rules[left].unchecked = "a call hangs"
            break
    os.chdir(case.folder)
    report.facts = case.facts
    return report


def _build(case: Case) -> None:
    """Build one instance; a mistake in the arguments is raised as RecipeError."""
    try:
        case.subject.prepare()
    except RecipeError:
        raise
    except Exception as error:
        raise RecipeError(f"{case.subject.label} cannot be built: {type(error).__name__}: {error}.") from error
    try:
        case.calls.supervised(case.build)
    except Broken as broken:
        if isinstance(broken.__cause__, RecipeError):
            raise broken.__cause__ from None
        raise RecipeError(f"{case.subject.label} cannot be built: {broken.what}.") from broken


def _part(name: str, case: Case, report: Report, skip: Collection[str]) -> bool:
    """Check one rule; return False if the environment cannot be used any further."""

    def work() -> None:
        try:
            for problem in RULES[name](case):
                report.add(name, problem)
        finally:
            case.calls.close_all()

    try:
        case.calls.supervised(work)
    except Unchecked as reason:
        report.rules[name].unchecked = str(reason)
    except Broken as broken:
        if broken.rule not in skip:
            belongs = name == "threads" or (broken.rule == "exceptions" and "thread" in broken.what)
            report.add(broken.rule, f"{broken.what}; {ONE_THREAD}" if belongs else broken.what)
        if broken.rule != name:
            report.rules[name].unchecked = f"ended by {broken.rule}"
        return broken.rule != "time"
    except RecipeError:
        raise
    except Exception as error:  # the environment's results are so wrong that the rule itself failed
        report.add(name, f"{type(error).__name__}: {error}")
    return True
