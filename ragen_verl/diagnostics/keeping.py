"""The consequences of a verdict: which checkpoints stay, and whether the run stops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ragen_verl.config.diagnostics import Stop
from ragen_verl.diagnostics.verdict import Verdict

__all__ = ["Action", "CheckpointPolicy"]


@dataclass(frozen=True)
class Action:
    """What to do after a step.

    Attributes:
        keep: saved steps whose checkpoints stay, even where old ones are removed otherwise.
        best: the saved step with the best held-out score; None where no saved step has a score.
        last_good: the last step saved before the first warning; None without a warning, or if none was saved by then.
        stop: the reason to stop after this step, in one sentence; None to continue.
    """

    keep: frozenset[int]
    best: int | None = None
    last_good: int | None = None
    stop: str | None = None


class CheckpointPolicy:
    """Keeps the best checkpoint, the last before the first warning and the newest; stops the run if its recipe says so.

    Args:
        config: `ragen.stop`.
    """

    def __init__(self, config: Stop) -> None:
        self.config = config

    def decide(
        self, step: int, verdict: Verdict, scores: Mapping[int, float], saved: Iterable[int], rule: str | None = None
    ) -> Action:
        """Decide after a step; pure: the same arguments give the same action.

        Args:
            step: the step that has just finished.
            verdict: `Monitor.verdict` after that step.
            scores: step -> held-out score, higher is better; steps that were not evaluated are absent.
            saved: steps whose checkpoints exist.
            rule: the result of `EarlyStop.update`.
        """
        saved = sorted(saved)
        scored = [one for one in saved if one in scores]
        best = max(scored, key=lambda one: (scores[one], -one), default=None)  # the earlier of two equals
        before = [one for one in saved if verdict.warned is not None and one < verdict.warned]
        last_good = before[-1] if before else None
        newest = saved[-1] if saved else None
        keep = {newest} if not self.config.keep_good else {newest, best, last_good}
        return Action(frozenset(keep - {None}), best, last_good, self._reason(step, verdict, rule))

    def _reason(self, step: int, verdict: Verdict, rule: str | None) -> str | None:
        if rule is not None:
            return f"Stopped after step {step}: early-stop rule {rule} (ragen.stop.{rule})."
        rest = self.config.after_collapse
        if rest is not None and verdict.collapsed and step >= verdict.collapsed[0] + rest:
            return (
                f"Stopped after step {step}: collapsed since step {verdict.collapsed[0]} (ragen.stop.after_collapse)."
            )
        if self.config.on_warning != "stop" or verdict.warned is None:
            return None
        cause = verdict.primary.cause if verdict.primary and verdict.primary.warns else "a fall of performance"
        return f"Stopped after step {step}: {cause} since step {verdict.warned} (ragen.stop.on_warning)."
