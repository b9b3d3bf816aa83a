"""An environment under check, and the methods that the rules share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ragen_lab.checker.calls import Calls
from ragen_lab.checker.costs import NANO
from ragen_lab.checker.profile import Profile
from ragen_lab.checker.record import Event, episode
from ragen_lab.checker.subject import Subject

from ragen_verl.env.core import Env

__all__ = ["Case", "Unchecked"]


class Unchecked(Exception):
    """A rule does not apply; the message says why."""


@dataclass
class Case:
    """An environment under check, and the methods that the rules share."""

    subject: Subject
    profile: Profile
    calls: Calls
    facts: dict[str, Any] = field(default_factory=dict)
    alone: dict[int, list[Event]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    tokenizer: str = NANO
    folder: str = field(default_factory=os.getcwd)  # the working directory before the environment is built

    def build(self) -> Env:
        """A new instance."""
        return self.calls.build(self.subject.build)

    def episode(self, env: Env, seed: int, **options: Any) -> Iterator[Event]:
        """The recorded episode of a seed; the seed determines its rollout index, as in `other_process`."""
        return episode(env, seed, seed % 3, self.profile.steps, self.calls, **options)

    def record(self, seed: int) -> list[Event]:
        """The episode of a seed in a fresh instance that plays alone; it is played once and kept."""
        if seed not in self.alone:
            self.alone[seed] = list(self.episode(self.build(), seed))
        return self.alone[seed]

    def seeds(self) -> range:
        """The seeds that are recorded."""
        return range(self.profile.seeds)
