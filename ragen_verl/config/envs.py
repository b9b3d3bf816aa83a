"""`ragen.train` and `ragen.val`: which environments a split plays, and from which seeds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ragen_verl.config.schema import FILLED, at_least


@dataclass(frozen=True)
class EnvGroups:
    """One environment of a split: how many groups play it, with which arguments, under which name in the metrics."""

    id: str = field(metadata=FILLED)
    groups: int = field(metadata=at_least(1))
    kwargs: dict[str, Any] = field(default_factory=dict)
    name: str | None = field(default=None, metadata=FILLED)

    @property
    def tag(self) -> str:
        """The name this environment has in the metrics: its own, or its id without the version."""
        return self.name or re.sub(r"-v\d+$", "", self.id)


@dataclass(frozen=True)
class Split:
    """The environments of training or of validation, and the seed of the first group.

    Training advances the seed by `groups` at every step, so every step sees new initial states; validation always
    plays the seeds `seed .. seed + groups - 1` (reference: RAGEN's `seed.train` and `seed.val`).
    """

    envs: tuple[EnvGroups, ...] = field(metadata=FILLED)
    seed: int = field(metadata=at_least(0))

    @property
    def groups(self) -> int:
        """P: prompts, that is initial states, of one step."""
        return sum(env.groups for env in self.envs)

    def seeds(self, steps: int = 1) -> range:
        """The seeds that `steps` steps use."""
        return range(self.seed, self.seed + steps * self.groups)

    def env_of(self, position: int) -> EnvGroups:
        """The environment that the group at `position` (0 .. groups - 1) of a step plays."""
        for env in self.envs:
            if position < env.groups:
                return env
            position -= env.groups
        raise IndexError(f"a step has {self.groups} groups only")
