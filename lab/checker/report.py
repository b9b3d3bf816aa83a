"""The report of a check: the rules with their problems, and the facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Report", "Verdict"]

_SHOWN = 3
"""The number of findings that are kept for one rule; further ones usually repeat them."""


@dataclass
class Verdict:
    """The verdict on one rule: `problems` break it; `unchecked` says why it was not checked completely."""

    problems: list[str] = field(default_factory=list)
    unchecked: str = ""

    @property
    def word(self) -> str:
        """`broken`, `not checked` or `kept`."""
        return "broken" if self.problems else "not checked" if self.unchecked else "kept"


@dataclass
class Report:
    """The report on one environment.

    Attributes:
        label: the given id, or the name of the class.
        kwargs: the arguments of the environment.
        rules: name -> verdict, in the order of checking.
        facts: numbers for the reader: scores, stop reasons, times, tokens.
        notes: sentences about weak tests.
    """

    label: str
    kwargs: dict[str, Any]
    rules: dict[str, Verdict]
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no rule was found broken."""
        return not self.broken

    @property
    def broken(self) -> list[str]:
        """Names of the rules that were found broken."""
        return [name for name, verdict in self.rules.items() if verdict.problems]

    def add(self, rule: str, problem: str) -> None:
        """Add a finding, once, and only a few for each rule."""
        problems = self.rules[rule].problems
        if problem not in problems and len(problems) < _SHOWN:
            problems.append(problem)

    def as_json(self) -> dict[str, Any]:
        """The report as strict JSON data."""
        from ragen_verl.rollout.trajectory import plain

        rules = {
            name: {"verdict": verdict.word, "problems": list(verdict.problems), "unchecked": verdict.unchecked}
            for name, verdict in self.rules.items()
        }
        found = {"ok": self.ok, "rules": rules, "facts": self.facts, "notes": self.notes}
        return plain({"id": self.label, "kwargs": self.kwargs, **found})

    def __str__(self) -> str:
        if self.ok:
            return " ".join([f"{self.label} keeps every rule.", *self.notes])
        lines = [f"{name}: {problem}" for name in self.broken for problem in self.rules[name].problems]
        return "\n".join([f"{self.label} breaks {len(self.broken)} rule(s).", *lines])
