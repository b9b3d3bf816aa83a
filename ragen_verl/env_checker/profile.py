"""How thoroughly an environment is checked."""

from __future__ import annotations

from dataclasses import dataclass

from ragen_verl.errors import RecipeError


@dataclass(frozen=True)
class Profile:
    """Sizes of a check.

    Args:
        episodes: scored for the random player and as many for the oracle; as many resets are timed.
        seeds: initial states whose episodes are recorded and compared.
        steps: most actions of a recorded or timed episode.
        budget: most actions of a scored episode; None leaves the environment its own.
        neighbours: instances that play at the same time, a thread each.
        texts: how many of the hostile texts are tried; None tries all.
        limit: seconds a single call may take.

    Raises:
        RecipeError: a size below 1, or no time at all.
    """

    episodes: int = 20
    seeds: int = 5
    steps: int = 60
    budget: int | None = None
    neighbours: int = 100
    texts: int | None = None
    limit: float = 10.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and value < 1 and not (name == "limit" and value > 0):
                raise RecipeError(f"{name} is {value}; set it {'above 0' if name == 'limit' else 'to 1 or more'}.")


FULL = Profile()
QUICK = Profile(episodes=4, seeds=2, steps=12, budget=60)
"""For a whole registry: every rule, small numbers."""
