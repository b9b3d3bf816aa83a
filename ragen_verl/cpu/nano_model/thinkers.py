"""The models whose thoughts are sentences: three, built on each machine by `examples/nano_model` into the cache."""

from __future__ import annotations

from pathlib import Path

from ragen_verl.cpu.nano_model import cache
from ragen_verl.errors import RecipeError

__all__ = ["THINKERS", "nano_path", "thinker_of", "thinker_path"]

THINKERS = (1, 2, 3)
"""Seeds of the models whose thoughts are sentences."""

_EDITION = 2
"""Increased when the recipe of these models changes, so that no run uses a model of another recipe."""

_STREAM = 1_000_000
"""The distance between the seeds of an experiment."""


def thinker_path(number: int) -> Path:
    """The folder of a model whose thoughts are sentences, built or not; `number` is one of `THINKERS`."""
    return cache() / f"thoughts-{_EDITION}-seed{number}"


def thinker_of(seed: int) -> int:
    """Which of `THINKERS` a run with this seed takes: one after the other, as the seeds' millions rise from 1."""
    return THINKERS[(seed // _STREAM - 1) % len(THINKERS)]


def nano_path(thoughts: str, number: int | None = None) -> Path:
    """The folder of a nano model: the resolver `${ragen_nano:thoughts,1}`.

    Args:
        thoughts: `thoughts`, for a model whose thoughts are sentences.
        number: one of `THINKERS`, or a run's seed, which chooses one of them.

    Raises:
        RecipeError: there is no such model, or it has not been built on this machine.
    """
    if thoughts != "thoughts" or not isinstance(number, int) or number < 1:
        raise RecipeError(
            f"There is no nano model {thoughts},{number}: use ${{ragen_nano:}}, or ${{ragen_nano:thoughts,N}} with N "
            "from 1 to 3 or a run's seed."
        )
    chosen = number if number in THINKERS else thinker_of(number)
    folder = thinker_path(chosen)
    if not (folder / "model.safetensors").is_file():
        raise RecipeError(
            f"The nano model thoughts,{chosen} is not in {folder.parent} yet: build it with `python -m nano_model "
            f"--thoughts sentences --seed {chosen}` in examples/nano_model of the repository."
        )
    return folder
