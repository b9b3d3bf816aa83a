"""Python processes that start with torch, vLLM and the like imported, as the workers of a training on the CPU do.

Importing them takes 10 s of a core, for each of the processes in which a test watches verl being imported.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ragen_verl.cpu import fork_client, fork_server
from ragen_verl.cpu.forked_driver import ForkedDriver

CLIENT = [sys.executable, "-I", "-S", fork_client.__file__]


SHARED = "RAGEN_VERL_TESTS_FORK_SERVER"
"""The environment variable with the socket of the one server of a run of tests; pytest's processes hand it on."""


def share() -> str:
    """The socket of the server that this process and the processes it starts fork from; it ends with this one."""
    if SHARED not in os.environ:
        with without_server():
            fork_server.start()
            address = os.environ[fork_server.ADDRESS]
        os.environ[SHARED] = address
    return os.environ[SHARED]


@contextmanager
def forked_workers() -> Iterator[None]:
    """While open, what is started through `fork_client` here and in child processes is forked from the server."""
    with without_server() as patch:
        patch.setenv(fork_server.ADDRESS, share())
        patch.setenv(fork_server.PYTHON, shlex.join(CLIENT))
        yield


@contextmanager
def without_server() -> Iterator[pytest.MonkeyPatch]:
    """While open, the environment names no fork server; what is set meanwhile is gone afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (fork_server.ADDRESS, fork_server.PYTHON):
            patch.setenv(name, "")
            patch.delenv(name)
        yield patch


def run(code: str, *arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a process with this code prints. The exit code is the client's, which does not wait for it."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(code)
        environment = {**os.environ, fork_server.ADDRESS: share(), **environment}
        command = [*CLIENT, str(script), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=550, cwd=cwd, env=environment)


def run_module(name: str, *arguments: str, cwd: Path) -> tuple[int, str]:
    """The exit code of `python -m NAME ARGUMENTS`, and all that it prints."""
    with without_server() as patch, tempfile.TemporaryFile("w+") as output:
        patch.setenv(fork_server.ADDRESS, share())
        patch.chdir(cwd)
        code = ForkedDriver([sys.executable, "-m", name, *arguments], output).wait(550)
        output.seek(0)
        return code, output.read()
