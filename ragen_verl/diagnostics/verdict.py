"""The verdict on a run: which causes of failure show, since when, on what evidence, and what to change.

A cause counts from the first step at which its rule fired and stays in the verdict, even if the run recovers. The
verdict ranks causes by that step; the first is the primary one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ragen_verl.diagnostics.echo_trap import Reading
from ragen_verl.diagnostics.registry import NOTE, WARNING, Evidence

__all__ = ["TOO_EARLY", "Finding", "Verdict"]

_SCHEMA = 2
"""Version of `Verdict.record()`; raised when a field changes its meaning or goes away."""

TOO_EARLY = "too early"


@dataclass(frozen=True)
class Finding:
    """A cause that was found.

    Attributes:
        cause: its name.
        step: the step of the first warning, or of the note while there is no warning.
        evidence: the evidence at that step.
        advice: what to change; empty for a note, and where the run went well afterwards.
    """

    cause: str
    step: int
    evidence: Evidence
    advice: str

    @property
    def warns(self) -> bool:
        """Whether it is a warning; a note is something that also occurs in runs that go well."""
        return self.evidence.level == WARNING


@dataclass(frozen=True)
class Verdict:
    """The verdict after a step.

    Attributes:
        step: the last step that was read, -1 before the first.
        findings: warnings by first step, then notes by first step.
        collapsed: the first step at which performance was seen to be lost, and the evidence; None if it was not.
        readings: the indicators now, with their baselines.
        enough: whether success or reward has a baseline by now; before that, the absence of findings means nothing.
        causes: the names of all causes that were tested.
    """

    step: int
    findings: tuple[Finding, ...] = ()
    collapsed: tuple[int, Evidence] | None = None
    readings: tuple[Reading, ...] = ()
    enough: bool = True
    causes: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """The worst that is known: `collapsed`, `warning`, `note` or `healthy`; `too early` where nothing is known."""
        if self.collapsed:
            return "collapsed"
        if self.findings:
            return NOTE if self.warned is None else WARNING
        return "healthy" if self.enough else TOO_EARLY

    @property
    def primary(self) -> Finding | None:
        """The first warning, or the first note where there is no warning."""
        return self.findings[0] if self.findings else None

    @property
    def warned(self) -> int | None:
        """The step of the first warning, or of the collapse if that came without or before one."""
        steps = [finding.step for finding in self.findings if finding.warns]
        return min([*steps, self.collapsed[0]] if self.collapsed else steps, default=None)

    def metrics(self) -> dict[str, float]:
        """Metrics of the step: `verdict/{cause}` (1 from its warning on), `verdict/warnings`, `verdict/collapsed`."""
        warned = {finding.cause for finding in self.findings if finding.warns}
        flags = {f"verdict/{name}": float(name in warned) for name in self.causes}
        return flags | {"verdict/warnings": float(len(warned)), "verdict/collapsed": float(bool(self.collapsed))}

    def record(self) -> dict[str, Any]:
        """The verdict as JSON-able data, for verdict.json."""
        primary = self.primary
        return {
            "schema": _SCHEMA,
            "step": self.step,
            "status": self.status,
            "primary": primary.cause if primary else None,
            "first_warning": self.warned,
            "collapsed": {"step": self.collapsed[0], **asdict(self.collapsed[1])} if self.collapsed else None,
            "findings": [asdict(finding) for finding in self.findings],
            "indicators": [asdict(reading) for reading in self.readings],
        }
