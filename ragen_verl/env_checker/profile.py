"""How thoroughly an environment is checked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ragen_verl.errors import RecipeError

_SLOW = 0.02  # seconds of a step
_EPISODE = 1.0  # seconds that the steps of an episode of a slow environment may take together


@dataclass(frozen=True)
class Profile:
    """Sizes of a check.

    Args:
        episodes: scored for the random player and as many for the oracle; as many resets are timed.
        seeds: initial states whose episodes are recorded and compared.
        steps: most actions of a recorded or timed episode.
        budget: most actions of a scored episode; an environment's own is kept where it is smaller.
        neighbours: instances that play at the same time, a thread each.
        texts: how many of the hostile texts are tried; None tries all.
        limit: seconds a single call may take.
        tokens: that an observation may have.
        step_seconds: that the median of the steps may take.

    Raises:
        RecipeError: a size below 1, or no time at all.
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

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            time = name in ("limit", "step_seconds")
            if value is not None and value < 1 and not (time and value > 0):
                raise RecipeError(f"{name} is {value}; set it {'above 0' if time else 'to 1 or more'}.")

    def slowed(self, step_seconds: float) -> Profile:
        """Return smaller numbers where steps take so long, so that a check ends in a minute or so."""
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
"""For a whole registry: every rule, small numbers."""
