"""Python processes that start with torch, vLLM and the like imported, as the workers of a training on the CPU do.

Importing them takes 10 s of a core, for each of the processes in which a test watches verl being imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ragen_verl.cpu import fork_client, fork_server


@contextmanager
def forked_workers() -> Iterator[None]:
    """While open, what is started through `fork_client` here and in child processes is forked from one server."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (fork_server.ADDRESS, fork_server.PYTHON):
            patch.setenv(name, "")
            patch.delenv(name)
        server = fork_server.start()
        try:
            yield
        finally:
            server.kill()


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    """What a process with this code prints. The exit code is the client's, which does not wait for it."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(code)
        command = [sys.executable, "-I", "-S", fork_client.__file__, str(script)]
        environment = {**os.environ, **environment}
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
