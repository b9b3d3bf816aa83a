"""Sandboxes: where programs run that a model wrote. They isolate, or they refuse to start; there is no fallback.

    with open_sandbox() as sandbox:
        sandbox.write("a.py", "print(6 * 7)")
        print(sandbox.run(["python3", "a.py"]).output)

The kind is a name in `SANDBOXES`; `bubblewrap` is the default and the only one with programs. Another kind is a class
derived from `Sandbox` that a plugin adds with `SANDBOXES.add("docker", DockerSandbox)`.
"""

from __future__ import annotations

from ragen_envs.sandbox.bubblewrap import Bubblewrap
from ragen_envs.sandbox.protocol import Limits, Result, Sandbox, SandboxError

from ragen_verl.extensions import Registry

__all__ = ["SANDBOXES", "Limits", "Result", "Sandbox", "SandboxError", "open_sandbox"]

SANDBOXES: Registry[type[Sandbox]] = Registry("sandbox")
SANDBOXES.add("bubblewrap", Bubblewrap)


def open_sandbox(kind: str = "bubblewrap", limits: Limits | None = None) -> Sandbox:
    """Start a sandbox, empty and without a network.

    Raises:
        RecipeError: there is no such kind.
        SandboxError: it cannot isolate on this machine.
    """
    return SANDBOXES.find(kind, "sandbox").open(limits or Limits())
