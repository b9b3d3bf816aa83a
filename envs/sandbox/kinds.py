"""The kinds of sandboxes by name."""

from __future__ import annotations

from functools import cache

from ragen_envs.sandbox.bubblewrap import Bubblewrap
from ragen_envs.sandbox.protocol import Limits, Sandbox

from ragen_verl.extensions import Registry

__all__ = ["SANDBOXES", "isolates", "open_sandbox"]

SANDBOXES: Registry[type[Sandbox]] = Registry("sandbox")
SANDBOXES.add("bubblewrap", Bubblewrap)


def open_sandbox(kind: str = "bubblewrap", limits: Limits | None = None) -> Sandbox:
    """Start a sandbox, empty and without a network.

    Raises:
        RecipeError: there is no such kind.
        SandboxError: it cannot isolate on this machine.
    """
    return SANDBOXES.find(kind, "sandbox").open(limits or Limits())


@cache
def isolates(kind: str) -> None:
    """Refuse a machine without such a sandbox before anything is played; raises like `open_sandbox`."""
    open_sandbox(kind).close()
