"""The checker: whether an environment keeps the rules that training relies on, and what it costs.

    report = check(Subject.of("Sokoban-v0"))
    assert report.ok, report

The modules are: the environment under check (`subject`), its monitored calls (`calls`), recorded episodes (`record`),
the shared parts of the rules (`case`), the rules (`rules`, `rules_of_play`), traces in the process (`traces`), hidden
state (`state`), another process (`other_process`), scored episodes (`scores`), times and sizes (`costs`), the outcome
(`report`). `ragen-verl env check` and `ragen_lab.testing` use it.
"""

from ragen_lab.checker.check import check
from ragen_lab.checker.profile import FULL, QUICK, Profile
from ragen_lab.checker.report import Report
from ragen_lab.checker.rules import RULES
from ragen_lab.checker.subject import Subject

__all__ = ["FULL", "QUICK", "RULES", "Profile", "Report", "Subject", "check"]
