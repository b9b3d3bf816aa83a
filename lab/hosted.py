"""Build environments where their class wants to run: in this process, or in a worker process."""

from __future__ import annotations

from functools import cache
from typing import Any

from ragen_verl.env.core import Env
from ragen_verl.env.hosting.process import EnvProcesses
from ragen_verl.env.registry import isolation, make

__all__ = ["make_hosted", "prepare"]


def make_hosted(id: str, **kwargs: Any) -> Env:
    """Build the environment `id`, in a worker process if its `isolation` is "process"; raises like `make`."""
    return _processes().worker().make(id, **kwargs) if isolation(id) == "process" else make(id, **kwargs)


def prepare(id: str, **kwargs: Any) -> None:
    """Start the worker processes and import the environment there, so that the times of calls do not include this."""
    for worker in _processes().workers:
        worker.make(id, **kwargs).close()


@cache
def _processes() -> EnvProcesses:
    return EnvProcesses(2)
