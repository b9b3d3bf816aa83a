"""verl's driver as a child of the fork server, in the form of a `subprocess.Popen`."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import time
from typing import IO

from ragen_verl.cpu import fork_server

__all__ = ["ForkedDriver"]


class ForkedDriver:
    """A process that leads a process group and was forked with all imports.

    If the server is still importing, the process begins when the server is ready. If the server gives up, the command
    is started as a normal process.

    Args:
        command: an interpreter, `-m`, a module and its arguments.
        output: the file to which the process writes.

    Raises:
        OSError: there is no server.
    """

    def __init__(self, command: list[str], output: IO) -> None:
        self._command, self._output = command, output
        self._plain: subprocess.Popen | None = None
        self._lines = b""
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(os.environ[fork_server.ADDRESS])
        with open(os.devnull) as nothing:
            socket.send_fds(self._server, [b"0"], [nothing.fileno(), output.fileno(), output.fileno()])
        request = {"argv": command[1:], "env": dict(os.environ), "cwd": os.getcwd(), "waits": True}
        self._server.sendall(json.dumps(request).encode() + b"\n")

    @property
    def pid(self) -> int | None:
        """Number of the process and of its group, None before it has begun."""
        self.poll()
        if self._plain is not None:
            return self._plain.pid
        begun = self._lines.split(b"\n")
        return int(begun[0][1:]) if len(begun) > 1 else None

    def poll(self) -> int | None:
        """The exit code, the negative number of the signal that ended it, or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float) -> int:
        """Wait for the end.

        Raises:
            subprocess.TimeoutExpired: after `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while (code := self._look(max(0.0, end - time.monotonic()))) is None:
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired(self._command, timeout)
        return code

    def cancel(self) -> None:
        """Give up a process that has not begun."""
        self._server.close()

    def _look(self, seconds: float) -> int | None:
        """Read the server's messages: 1, a line with the process's number, a line with its exit code."""
        if self._plain is not None:
            try:
                return self._plain.wait(seconds) if seconds else self._plain.poll()
            except subprocess.TimeoutExpired:
                return None
        if self._lines.count(b"\n") < 2 and select.select([self._server], [], [], seconds)[0]:
            try:
                read = self._server.recv(64)
            except ConnectionError:
                read = b""
            if not read and not self._lines:  # the server gave up before it took the command
                self._plain = subprocess.Popen(
                    self._command, stdout=self._output, stderr=self._output, start_new_session=True
                )
                return None
            self._lines += read
            if not read:  # the server's process for this client was killed
                return -signal.SIGKILL
        done = self._lines.split(b"\n")
        return int(done[1]) if len(done) > 2 else None
