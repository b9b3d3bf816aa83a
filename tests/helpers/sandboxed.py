"""Tests that need bubblewrap: where there is none, `SANDBOX` skips them and says which command installs it."""

from __future__ import annotations

import shutil

import pytest
from ragen_envs.sandbox import SandboxError, open_sandbox

__all__ = ["SANDBOX", "why_no_sandbox"]


def why_no_sandbox() -> str:
    """Why this machine has no sandbox, "" where it has one. One that is installed and fails is no reason to skip."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed: run apt-get install bubblewrap"
    try:
        open_sandbox().close()
    except SandboxError as error:  # as in a container without user namespaces
        return str(error)
    return ""


_WHY = why_no_sandbox()
SANDBOX = pytest.mark.skipif(bool(_WHY), reason=_WHY or "-")
