"""`Profile`: how thorough the check of an environment is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ragen_verl.errors import RecipeError

__all__ = ["FULL", "QUICK", "Profile"]

_SLOW = 0.02  # seconds of a step
_EPISODE = 1.0  # seconds that the steps of an episode of a slow environment may take together


@dataclass(frozen=True)
class Profile:
    """Sizes of a check.

    Args:
        episodes: the number of scored episodes of the random player, and of the oracle, and the number of timed resets.
        seeds: the number of initial states whose episodes are recorded and compared.
        steps: the highest number of actions in a recorded or timed episode.
        budget: the highest number of actions in a scored episode; the environment's own budget is used if it is lower.
        neighbours: the number of instances that play at the same time, each in its own thread.
        texts: how many of the hostile texts are tried; None tries all.
        limit: the seconds that a single call may take.
        tokens: the highest number of tokens of an observation.
        step_seconds: the limit for the median time of a step.
        begin_seconds: the limit for building an instance and the median time of its reset.

    Raises:
        RecipeError: a size is below 1, or a time is not above 0.
    """

    episodes: int = 20
    seeds: int = 5
    steps: int = 60
    budget: int = 2000
    neighbours: int = 100
    texts: int | None = None
    limit: float = 10.0
    tokens: int = 8192
    step_seconds: float = 0.2
    begin_seconds: float = 1.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            time = name in ("limit", "step_seconds", "begin_seconds")
            if value is not None and value < 1 and not (time and value > 0):
                raise RecipeError(f"{name} is {value}; set it {'above 0' if time else 'to 1 or more'}.")

    def slowed(self, step_seconds: float) -> Profile:
        """Return a profile with smaller numbers for slow steps, so that a check takes about a minute."""
        if step_seconds < _SLOW:
            return self
        steps = max(3, int(_EPISODE / step_seconds))
        return replace(
            self,
            episodes=min(self.episodes, 4),
            seeds=min(self.seeds, 2),
            steps=min(self.steps, steps),
            budget=min(self.budget, steps),
            neighbours=min(self.neighbours, 8),
            texts=min(self.texts or 5, 5),
        )


FULL = Profile()
QUICK = Profile(episodes=4, seeds=2, steps=12, budget=60)
"""The profile for a whole registry: every rule with small numbers."""
