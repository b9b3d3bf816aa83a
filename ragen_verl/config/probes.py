"""`ragen.diagnostics.mutual_information` and `ragen.diagnostics.gradient_signal`: probes that cost model passes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragen_verl.config.schema import FRACTION, at_least
from ragen_verl.errors import RecipeError

__all__ = ["GradientSignal", "MutualInformation"]

_STRATEGIES = ("fsdp", "fsdp2")
"""Values of `actor_rollout_ref.actor.strategy` with which the gradient norm can be measured without a weight update."""


@dataclass(frozen=True)
class MutualInformation:
    """Template collapse: how much of the reasoning depends on the prompt (RAGEN-2, arXiv 2604.06268).

    Attributes:
        enabled: measure it.
        every: steps between two measurements; the first step is measured.
        share: its forward tokens, averaged over `every` steps, as a share of a step's own forward tokens.
        samples: the highest number of scored reasonings, drawn again each time; None takes as many as the tokens allow.
    """

    enabled: bool = False
    every: int = field(default=10, metadata=at_least(1))
    share: float = field(default=0.02, metadata=FRACTION)
    samples: int | None = field(default=None, metadata=at_least(2))


@dataclass(frozen=True)
class GradientSignal:
    """Gradient norms of task, entropy and KL by reward variance, without an optimiser step (RAGEN-2).

    Attributes:
        enabled: measure it. One measurement costs four to six times the backward passes of an epoch over the batch.
        every: steps between two measurements; the first step is measured.
        buckets: the number of quantiles of the groups' standard deviation of returns.
    """

    enabled: bool = False
    every: int = field(default=50, metadata=at_least(1))
    buckets: int = field(default=6, metadata=at_least(2))

    def check(self, strategy: str, group_size: int) -> None:
        """Refuse a recipe with which it cannot be measured.

        Args:
            strategy: `actor_rollout_ref.actor.strategy`.
            group_size: N, trajectories per group (`actor_rollout_ref.rollout.n`).

        Raises:
            RecipeError: the probe is on, and the backend does not support it or groups have one trajectory.
        """
        if not self.enabled:
            return
        if strategy not in _STRATEGIES:
            raise RecipeError(
                "ragen.diagnostics.gradient_signal needs actor_rollout_ref.actor.strategy fsdp or fsdp2, and it is "
                f"{strategy}: set its enabled to false."
            )
        if group_size < 2:
            raise RecipeError(
                "ragen.diagnostics.gradient_signal sorts groups by the standard deviation of their returns, and "
                f"actor_rollout_ref.rollout.n is {group_size}: use n of 2 or more, or set its enabled to false."
            )
