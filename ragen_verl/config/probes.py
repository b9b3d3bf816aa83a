"""`ragen.diagnostics.mutual_information` and `ragen.diagnostics.gradient_signal`: probes that cost model passes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragen_verl.config.schema import FRACTION, at_least
from ragen_verl.errors import RecipeError

STRATEGIES = ("fsdp", "fsdp2")
"""`actor_rollout_ref.actor.strategy` whose optimizer step gives a gradient norm that can be had without the step."""


@dataclass(frozen=True)
class MutualInformation:
    """Template collapse: how much of the reasoning depends on the prompt (RAGEN-2, arXiv 2604.06268).

    Attributes:
        enabled: measure it.
        every: steps between two measurements; the first step is measured.
        share: forward tokens spent on it, averaged over `every` steps, as a part of a step's own forward tokens.
        samples: reasonings that are scored at most, drawn anew each time; None takes as many as the tokens allow.
        max_forward_tokens: forward tokens of one measurement at most, whatever `share` allows; None sets no bound.
    """

    enabled: bool = False
    every: int = field(default=10, metadata=at_least(1))
    share: float = field(default=0.02, metadata=FRACTION)
    samples: int | None = field(default=None, metadata=at_least(2))
    # the smallest matrix is two by two, and a row has two tokens at least
    max_forward_tokens: int | None = field(default=None, metadata=at_least(8))


@dataclass(frozen=True)
class GradientSignal:
    """Gradient norms of task, entropy and KL by reward variance, without an optimiser step (RAGEN-2).

    Attributes:
        enabled: measure it. One measurement costs four to six times the backward passes of an epoch over the batch.
        every: steps between two measurements; the first step is measured.
        buckets: quantiles of the groups' standard deviation of returns.
    """

    enabled: bool = False
    every: int = field(default=50, metadata=at_least(1))
    buckets: int = field(default=6, metadata=at_least(2))

    def check(self, strategy: str, group_size: int) -> None:
        """Refuse what cannot be measured.

        Args:
            strategy: `actor_rollout_ref.actor.strategy`.
            group_size: N, trajectories per group (`actor_rollout_ref.rollout.n`).

        Raises:
            RecipeError: the probe is on with a backend it was not made for, or with groups of one.
        """
        if not self.enabled:
            return
        if strategy not in STRATEGIES:
            raise RecipeError(
                "ragen.diagnostics.gradient_signal needs actor_rollout_ref.actor.strategy fsdp or fsdp2, and it is "
                f"{strategy}: set its enabled to false."
            )
        if group_size < 2:
            raise RecipeError(
                "ragen.diagnostics.gradient_signal sorts groups by the standard deviation of their returns, and "
                f"actor_rollout_ref.rollout.n is {group_size}: use n of 2 or more, or set its enabled to false."
            )
