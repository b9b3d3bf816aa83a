"""A replacement of the interpreter of Ray workers: it asks `fork_server` for a child that runs the same command.

It runs without site-packages, so that it takes only 20 ms; without a server it becomes the plain interpreter.
"""

import json
import os
import socket
import sys

__all__ = ["ADDRESS", "PYTHON", "ask"]

ADDRESS = "RAGEN_VERL_FORK_SERVER"
"""The environment variable with the path of the server's socket."""

PYTHON = "RAGEN_VERL_PYTHON"
"""The environment variable with the command with which Ray starts its workers."""


def ask(path: str, argv: list) -> bool:
    """Send command, environment, folder and standard streams; return whether a child has taken over."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path)
            socket.send_fds(server, [b"0"], [0, 1, 2])
            request = {"argv": argv, "env": dict(os.environ), "cwd": os.getcwd()}
            server.sendall(json.dumps(request).encode() + b"\n")
            return server.recv(1) == b"1"
        except OSError:
            return False


if __name__ == "__main__" and not ask(os.environ.get(ADDRESS, ""), sys.argv[1:]):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
