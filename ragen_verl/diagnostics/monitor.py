"""The monitor of a run: it reads the metrics of every step and says what is wrong, since when, and what to change.

monitor = Monitor()
monitor.replay(folder.rows())             # a resumed run gets its state back
verdict = monitor.update(step, metrics)   # after every step
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ragen_verl.diagnostics.echo_trap import meanings, readings
from ragen_verl.diagnostics.performance import Performance, fallen, performance, solved
from ragen_verl.diagnostics.registry import CAUSES, NOTE, Evidence, Options, with_options
from ragen_verl.diagnostics.series import BASELINE, COUNTS, PERFORMANCE, WINDOW, Trace
from ragen_verl.diagnostics.verdict import Finding, Verdict
from ragen_verl.names import HELD_OUT_SUCCESS

__all__ = ["Monitor", "MonitorConfig", "judge"]


@dataclass(frozen=True)
class MonitorConfig:
    """The settings that a monitor needs from the recipe.

    Attributes:
        baseline: how many first steps give each metric its baseline.
        window: how many last steps give each metric its present value, as their median.
        causes: options of rules, name -> option -> value.
        changes: steps at which the training environments or their arguments change: the metrics from such a step on
            are compared only with one another.
    """

    baseline: int = BASELINE
    window: int = WINDOW
    causes: Options = field(default_factory=dict)
    changes: tuple[int, ...] = ()

    @classmethod
    def from_recipe(cls, ragen: Mapping[str, Any]) -> MonitorConfig:
        """Read a recipe's `ragen` block, given as plain data; a missing key has its default.

        A stored recipe may come from another version, so only the needed keys are read.
        """
        block = ragen.get("diagnostics") or {}
        if (ragen.get("rollout") or {}).get("protocol") == "tools":
            from ragen_verl.diagnostics import calls as calls  # registers causes
        envs = (ragen.get("train") or {}).get("envs") or ()
        stages = [stage for env in envs for stage in env.get("schedule") or ()]
        return cls(
            block.get("baseline_steps", BASELINE),
            block.get("window", WINDOW),
            block.get("causes") or {},
            tuple(sorted({int(stage["step"]) for stage in stages})),
        )


class Monitor:
    """Judges a run step by step.

    Its state is the metrics it was given: `judge` and a resumed run rebuild it by replaying metrics.jsonl.

    Args:
        config: the settings from the recipe.

    Raises:
        RecipeError: `config.causes` names a cause or an option that does not exist.
    """

    def __init__(self, config: MonitorConfig | None = None) -> None:
        self._config = config or MonitorConfig()
        self._trace = Trace(self._config.baseline, self._config.window)
        self._rules = with_options(CAUSES, self._config.causes, "causes")
        self._causes = dict(CAUSES)  # a copy, since every access to a registry looks for new plugins
        self._meanings = meanings()
        self._order = {name: position for position, name in enumerate(self._causes)}
        read = {metric for one in self._causes.values() for metric in one.reads}
        self._names = frozenset(read | {*PERFORMANCE, HELD_OUT_SUCCESS, *COUNTS.values()} | self._meanings.keys())
        self._findings: dict[str, Finding] = {}
        self._firing: set[str] = set()
        self._collapsed: tuple[int, Evidence] | None = None
        self._step = -1

    def update(self, step: int, metrics: Mapping[str, Any]) -> Verdict:
        """Take one step's metrics and return the verdict.

        Args:
            step: a step later than all before.
            metrics: under verl's and RAGEN's names; metrics that no rule reads are ignored.

        Raises:
            ValueError: the step was seen before.
        """
        self._take(step, metrics)
        return self.verdict

    def _take(self, step: int, metrics: Mapping[str, Any]) -> None:
        if step <= self._step:
            raise ValueError(f"step {step} comes after step {self._step}: a run that starts over needs a new monitor")
        if any(self._step < change <= step for change in self._config.changes):
            self._trace.restart()
        self._step = step
        self._trace.add(metrics, self._names)
        self._firing.clear()
        for name in list(self._rules):
            if evidence := self._test(name):
                self._firing.add(name)
                known = self._findings.get(name)
                if known is None or (evidence.level != NOTE and not known.warns):
                    advice = evidence.advice or self._causes[name].advice
                    self._findings[name] = Finding(name, step, evidence, advice)
        if self._collapsed is None and (evidence := fallen(self._trace)):
            self._collapsed = (step, evidence)

    def _test(self, name: str) -> Evidence | None:
        """One rule's evidence. A rule that raises is reported on stderr and switched off: no rule may end the run."""
        try:
            return self._rules[name](self._trace)
        except Exception as error:
            del self._rules[name]
            print(f"ragen_verl: the cause {name} is off, {type(error).__name__}: {error}", file=sys.stderr)
            return None

    def replay(self, lines: Iterable[Mapping[str, Any]]) -> Verdict:
        """Take the lines of metrics.jsonl, each with its `step`, and return the verdict.

        Where lines have the same step, later values replace earlier ones: a resumed run repeats steps.
        """
        steps: dict[int, dict[str, Any]] = {}
        for line in lines:
            steps.setdefault(int(line["step"]), {}).update(line)
        for step in sorted(steps):
            self._take(step, steps[step])
        return self.verdict

    @property
    def verdict(self) -> Verdict:
        """The verdict so far."""
        ranked = sorted(self._findings.values(), key=lambda one: (not one.warns, one.step, self._order[one.cause]))
        enough = any(self._trace[name].baseline is not None for name in (*PERFORMANCE, HELD_OUT_SUCCESS))
        return Verdict(
            self._step,
            tuple(replace(one, advice="") if self._passed(one) else one for one in ranked),
            self._collapsed,
            tuple(readings(self._trace, self._meanings)),
            enough,
            tuple(self._causes),
        )

    def _passed(self, finding: Finding) -> bool:
        """Whether nothing has to be changed: it is a note, or a warning that is over in a run that does well."""
        if not finding.warns:
            return True
        well = performance(self._trace) is Performance.HELD and self._collapsed is None
        return well and (finding.cause not in self._firing or (solved(self._trace) and not _wrong(finding)))


def _wrong(finding: Finding) -> bool:
    """Whether a finding is a fault of the set-up, which good results do not excuse."""
    return finding.cause in ("train_inference_mismatch", "not_finite", "episodes_failed")


def judge(lines: Iterable[Mapping[str, Any]], config: MonitorConfig | None = None) -> Verdict:
    """The verdict on a whole run.

    Args:
        lines: see `Monitor.replay`.
        config: see `Monitor`.
    """
    return Monitor(config).replay(lines)
