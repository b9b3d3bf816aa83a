"""The verdict on a run: which causes of failure show, since when, on what evidence, and what to change.

    monitor = Monitor()
    monitor.replay(folder.rows())             # a resumed run gets its state back
    verdict = monitor.update(step, metrics)   # after every step

A cause counts from the first step at which its rule fired and does not go away: a run that recovers was still in
trouble. The verdict ranks causes by that step; the first is the primary one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ragen_verl.diagnostics.causes import CAUSES, NOTE, READS, WARNING, Evidence, fallen
from ragen_verl.diagnostics.echo_trap import INDICATORS, Reading, readings
from ragen_verl.diagnostics.series import BASELINE, WINDOW, Trace

SCHEMA = 1
"""Version of `Verdict.record()`; raised when a field changes its meaning or goes away."""

NAMES = READS | frozenset(INDICATORS)


@dataclass(frozen=True)
class Finding:
    """A cause that showed.

    Attributes:
        cause: its name.
        step: of the first warning, or of the note while there is none.
        evidence: at that step.
        advice: what to change.
    """

    cause: str
    step: int
    evidence: Evidence
    advice: str

    @property
    def warns(self) -> bool:
        """A warning, not a note: something that also shows in runs that go well is a note."""
        return self.evidence.level == WARNING


@dataclass(frozen=True)
class Verdict:
    """What is known after a step.

    Attributes:
        step: the last one seen, -1 before any.
        findings: warnings by first step, then notes by first step.
        collapsed: the step at which performance was first seen to be lost, and the evidence; None if it is not.
        readings: the indicators now, against their baselines.
    """

    step: int
    findings: tuple[Finding, ...] = ()
    collapsed: tuple[int, Evidence] | None = None
    readings: tuple[Reading, ...] = ()

    @property
    def status(self) -> str:
        """`collapsed`, `warning`, `note` or `healthy`: the worst that is known."""
        if self.collapsed:
            return "collapsed"
        return WARNING if self.warned is not None else NOTE if self.findings else "healthy"

    @property
    def primary(self) -> Finding | None:
        """The first warning; without one the first note."""
        return self.findings[0] if self.findings else None

    @property
    def warned(self) -> int | None:
        """The step of the first warning, or of the collapse if that came without or before one."""
        steps = [finding.step for finding in self.findings if finding.warns]
        return min([*steps, self.collapsed[0]] if self.collapsed else steps, default=None)

    def metrics(self) -> dict[str, float]:
        """For the step's line: `verdict/{cause}`, 1 from its warning on, `verdict/warnings` and `verdict/collapsed`."""
        warned = {finding.cause for finding in self.findings if finding.warns}
        flags = {f"verdict/{cause.name}": float(cause.name in warned) for cause in CAUSES}
        return flags | {"verdict/warnings": float(len(warned)), "verdict/collapsed": float(bool(self.collapsed))}

    def record(self) -> dict[str, Any]:
        """The verdict as JSON-able data, for verdict.json."""
        primary = self.primary
        return {
            "schema": SCHEMA,
            "step": self.step,
            "status": self.status,
            "primary": primary.cause if primary else None,
            "first_warning": self.warned,
            "collapsed": {"step": self.collapsed[0], **asdict(self.collapsed[1])} if self.collapsed else None,
            "findings": [asdict(finding) for finding in self.findings],
            "indicators": [asdict(reading) for reading in self.readings],
        }


class Monitor:
    """Watches a run step by step.

    Its state is the metrics it was given: `judge` and a resumed run rebuild it by replaying metrics.jsonl.

    Args:
        baseline: steps that the baseline of each metric is made of.
        window: last steps whose median says where a metric is now.
    """

    def __init__(self, baseline: int = BASELINE, window: int = WINDOW) -> None:
        self._trace = Trace(baseline, window)
        self._findings: dict[str, Finding] = {}
        self._collapsed: tuple[int, Evidence] | None = None
        self._step = -1

    def update(self, step: int, metrics: Mapping[str, Any]) -> Verdict:
        """Take one step's metrics in and return the verdict.

        Args:
            step: later than every one before.
            metrics: verl's and RAGEN's names; those no rule reads are ignored.

        Raises:
            ValueError: the step was seen before.
        """
        if step <= self._step:
            raise ValueError(f"step {step} comes after step {self._step}: a run that starts over needs a new monitor")
        self._step = step
        self._trace.add(metrics, NAMES)
        for cause in CAUSES:
            known = self._findings.get(cause.name)
            if known and known.warns:
                continue
            evidence = cause.test(self._trace)
            if evidence and not (known and evidence.level == NOTE):
                self._findings[cause.name] = Finding(cause.name, step, evidence, cause.advice)
        if self._collapsed is None and (evidence := fallen(self._trace)):
            self._collapsed = (step, evidence)
        return self.verdict

    def replay(self, lines: Iterable[Mapping[str, Any]]) -> Verdict:
        """Take the lines of metrics.jsonl in, each with its `step`, and return the verdict.

        Of lines with one step the later values win: a run that was killed and went on repeats steps.
        """
        steps: dict[int, dict[str, Any]] = {}
        for line in lines:
            steps.setdefault(int(line["step"]), {}).update(line)
        for step in sorted(steps):
            self.update(step, steps[step])
        return self.verdict

    @property
    def verdict(self) -> Verdict:
        """The verdict so far."""
        ranked = sorted(self._findings.values(), key=lambda one: (not one.warns, one.step, _ORDER[one.cause]))
        return Verdict(self._step, tuple(ranked), self._collapsed, tuple(readings(self._trace)))


_ORDER = {cause.name: position for position, cause in enumerate(CAUSES)}


def judge(lines: Iterable[Mapping[str, Any]], baseline: int = BASELINE, window: int = WINDOW) -> Verdict:
    """The verdict on a whole run.

    Args:
        lines: see `Monitor.replay`.
        baseline, window: see `Monitor`.
    """
    return Monitor(baseline, window).replay(lines)
