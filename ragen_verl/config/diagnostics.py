"""`ragen.diagnostics` and `ragen.stop`: the measurements while training, and the effect of a warning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ragen_verl.config.probes import GradientSignal, MutualInformation
from ragen_verl.config.schema import FRACTION, POSITIVE, at_least, one_of

__all__ = ["Diagnostics", "Mismatch", "Stop"]


@dataclass(frozen=True)
class Mismatch:
    """The distance between the trainer's and the engine's log-probabilities of sampled tokens.

    Attributes:
        threshold: in nats; `mismatch/share` is the share of sampled tokens beyond it.
        bypass_freq: with `algorithm.rollout_correction.bypass_mode`, the number of steps between two measurements,
            each of which costs one more pass of the actor over the batch. The first step is measured; None switches it
            off. Without bypass mode every step is measured at no cost.
    """

    threshold: float = field(default=0.5, metadata=POSITIVE)
    bypass_freq: int | None = field(default=10, metadata=at_least(1))

    def due(self, step: int, bypass_mode: bool) -> bool:
        """Whether `step` (from 1) is measured."""
        return not bypass_mode or (self.bypass_freq is not None and (step - 1) % self.bypass_freq == 0)


@dataclass(frozen=True)
class Diagnostics:
    """The measurements while training.

    Attributes:
        baseline_steps: the number of first steps whose median is every metric's baseline.
        window: the number of last steps whose median is a metric's present value.
        indicators, causes: options of registered indicators and causes, name -> option -> value.
        mismatch, mutual_information, gradient_signal: their own blocks.
    """

    baseline_steps: int = field(default=10, metadata=at_least(3))
    window: int = field(default=5, metadata=at_least(3))
    indicators: dict[str, Any] = field(default_factory=dict)
    causes: dict[str, Any] = field(default_factory=dict)
    mismatch: Mismatch = field(default_factory=Mismatch)
    mutual_information: MutualInformation = field(default_factory=MutualInformation)
    gradient_signal: GradientSignal = field(default_factory=GradientSignal)


@dataclass(frozen=True)
class Stop:
    """The effect of a warning, and RAGEN-2's early-stop rules; a rule that is None is off.

    Attributes:
        on_warning: `continue`, or `stop` after the step of the verdict's first warning; a note never stops the run.
        keep_good: keep the best checkpoint and the last one before the first warning.
        reward_variance_collapse: consecutive steps with an in-group std of returns below 10 % of the mean of the first
            ten; RAGEN-2's paper says 5, its code 10.
        low_validation_success: consecutive evaluations with a success below 1 % in some environment; RAGEN-2: 5.
        after_collapse: steps that a run continues after the verdict has called it collapsed.
        failed_episodes: the share of failed episodes in three steps in a row above which the run ends.
    """

    on_warning: str = field(default="continue", metadata=one_of("continue", "stop"))
    keep_good: bool = True
    reward_variance_collapse: int | None = field(default=None, metadata=at_least(1))
    low_validation_success: int | None = field(default=None, metadata=at_least(1))
    after_collapse: int | None = field(default=None, metadata=at_least(0))
    failed_episodes: float | None = field(default=0.5, metadata=FRACTION)
