"""The `sft:` block of `ragen-verl sft`: settings of supervised training that no other recipe has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ragen_verl.config.schema import POSITIVE, at_least, parse
from ragen_verl.values import Accepts

__all__ = ["LR_FACTOR", "Sft"]

LR_FACTOR = 10.0


@dataclass(frozen=True)
class Sft:
    """Supervised training on demonstrations.

    Args:
        lr: the highest learning rate; None takes `LR_FACTOR` times that of the recipe's actor.
        batch_size: chats in an update.
        epochs: passes over the demonstrations.
        warmup: share of the updates in which the learning rate rises.
    """

    lr: float | None = field(default=None, metadata=POSITIVE)
    batch_size: int = field(default=64, metadata=at_least(1))
    epochs: int = field(default=3, metadata=at_least(1))
    warmup: float = field(
        default=0.05, metadata={"accepts": Accepts(lambda value: 0 <= value < 1, "a number from 0 to below 1")}
    )

    @classmethod
    def of(cls, block: Mapping[str, Any]) -> Sft:
        """Read the block.

        Raises:
            RecipeError: a key is unknown, or its value is not what the key takes.
        """
        return parse(cls, block, "sft")

    def peak(self, actor_lr: float) -> float:
        """The highest learning rate, given the learning rate of the recipe's actor."""
        return LR_FACTOR * actor_lr if self.lr is None else self.lr
