"""Sandboxes: where programs run that a model wrote. They isolate, or they refuse to start; there is no fallback.

    with open_sandbox() as sandbox:
        sandbox.write("a.py", "print(6 * 7)")
        print(sandbox.run(["python3", "a.py"]).output)

The kind is a name in `SANDBOXES`; `bubblewrap` is the default and the only one with programs. Another kind is a class
derived from `Sandbox` that a plugin adds with `SANDBOXES.add("docker", DockerSandbox)`.
"""

from ragen_envs.sandbox.kinds import SANDBOXES, isolates, open_sandbox
from ragen_envs.sandbox.protocol import Limits, Result, Sandbox, SandboxError

__all__ = ["SANDBOXES", "Limits", "Result", "Sandbox", "SandboxError", "isolates", "open_sandbox"]
