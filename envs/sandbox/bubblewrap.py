"""Programs in bubblewrap (`apt-get install bubblewrap`): namespaces of their own, without root, in 40 ms.

A sandbox is one process tree with the machine's /usr, read-only, and files in memory; `agent.py` is its first process.
All that goes in and out are lines through two pipes: the host never opens a path that the sandbox can change. Where
this process is root, bubblewrap is started by another user, since root's number of processes is not bounded.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ragen_envs.sandbox.protocol import Limits, Result, Sandbox, SandboxError, kept
from ragen_envs.sandbox.seccomp import seccomp_filter

__all__ = ["Bubblewrap"]

_NOBODY = 65534
_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_START_S = 20.0
_GRACE_S = 5.0  # what the agent may take beyond the time of a run
_MOST_REQUEST = 64 * 2**20
_ROOT = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr", "work"}
_SEEN = {"capabilities": 0, "no_new_privileges": 1, "seccomp": 2, "network": ["lo"], "pid": 1}

_AT_MOST = {"environment": {"LC_CTYPE", "PWD"}, "root": _ROOT}

_launcher: ThreadPoolExecutor | None = None
_lock = threading.Lock()


def _forget() -> None:
    global _launcher, _lock
    _launcher, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


class Bubblewrap(Sandbox):
    """A sandbox of bubblewrap; files are in /work and /tmp, in memory."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._process = _started(limits)
        self._rest = b""
        try:
            seen = self._line(_START_S)
        except SandboxError:
            why = self._complaint()
            self.close()
            raise SandboxError(
                f"bubblewrap cannot isolate on this machine ({why}): allow user namespaces to it (in Docker, "
                "--security-opt seccomp=unconfined), or play where they are; nothing runs without isolation."
            ) from None
        wrong = [name for name, value in _SEEN.items() if seen.get(name) != value]
        wrong += [name for name, known in _AT_MOST.items() if name not in seen or set(seen[name]) - known]
        if wrong:
            self.close()
            raise SandboxError(f"bubblewrap did not isolate on this machine ({', '.join(wrong)}): nothing runs there.")

    @classmethod
    def open(cls, limits: Limits) -> Bubblewrap:
        """Start one; raise SandboxError where it cannot isolate."""
        return cls(limits)

    def run(self, argv: Sequence[str], stdin: str = "", seconds: float | None = None) -> Result:
        """Run a program and end everything that it started; see `Sandbox.run`."""
        if isinstance(argv, str) or not argv:
            raise TypeError(f"argv is {argv!r}: make it a list of the program and its arguments")
        most = min(seconds or self.limits.seconds, self.limits.seconds)
        request = {"argv": list(argv), "stdin": _encoded(stdin), "seconds": most}
        try:
            found = self._asked("run", request, most + _GRACE_S)
        except OSError as error:  # as a shell says it
            return Result(f"{argv[0]}: {error.strerror}", 126 if isinstance(error, PermissionError) else 127, "", 0.0)
        head, tail = (base64.b64decode(found[name]) for name in ("head", "tail"))
        return Result(kept(head, tail, found["total"]), found["code"], found["stopped"], found["seconds"])

    def write(self, path: str, text: str | bytes) -> None:
        """Write a file of the sandbox; see `Sandbox.write`."""
        self._asked("write", {"path": path, "data": _encoded(text)}, _START_S)

    def read(self, path: str, most: int = 2**20) -> bytes:
        """Return the beginning of a file of the sandbox; see `Sandbox.read`."""
        return base64.b64decode(self._asked("read", {"path": path, "most": min(most, _MOST_REQUEST)}, _START_S)["data"])

    def close(self) -> None:
        """End all its processes and remove its files."""
        process = self._process
        if process.poll() is None:
            process.kill()  # bwrap's children die with it
        for pipe in (process.stdin, process.stdout, process.stderr):
            with suppress(OSError):  # what was not sent
                pipe.close()
        process.wait()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a sandbox cannot be copied: open another one")

    def _complaint(self) -> str:
        """What bubblewrap says about its end."""
        said = self._process.stderr
        ready = select.select([said], [], [], 1.0)[0]
        return os.read(said.fileno(), 2000).decode("utf-8", "replace").strip() if ready else "no answer"

    def _asked(self, what: str, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and return the answer; raise the OSError that it names."""
        line = json.dumps({"do": what, **request}).encode() + b"\n"
        if len(line) > _MOST_REQUEST:
            raise OSError(27, "more than a sandbox takes at once")
        deadline = time.monotonic() + seconds
        self._send(line, deadline)
        found = self._line(deadline - time.monotonic())
        if "error" in found:
            raise OSError(*found["error"])
        return found

    def _send(self, line: bytes, deadline: float) -> None:
        into = self._process.stdin
        if into.closed:
            raise SandboxError("The sandbox is closed: open another one.")
        rest = memoryview(line)
        while rest:
            if not select.select([], [into], [], max(0.0, deadline - time.monotonic()))[1]:
                self._gone()
            try:
                rest = rest[os.write(into.fileno(), rest[: select.PIPE_BUF]) :]
            except OSError:
                self._gone()

    def _line(self, seconds: float) -> dict[str, Any]:
        """The agent's next line; the sandbox is closed if none comes in time."""
        deadline, out = time.monotonic() + seconds, self._process.stdout
        found = bytearray(self._rest)
        while b"\n" not in found:
            ready = select.select([out], [], [], max(0.0, deadline - time.monotonic()))[0]
            block = os.read(out.fileno(), 2**16) if ready else b""
            if not block:
                self._gone()
            found += block
        line, _, rest = bytes(found).partition(b"\n")
        self._rest = rest
        try:
            return json.loads(line)
        except ValueError:
            self._gone()

    def _gone(self) -> NoReturn:
        if self._process.poll() is None:
            self._process.kill()
        raise SandboxError("The sandbox has ended: open another one.")


def _encoded(text: str | bytes) -> str:
    return base64.b64encode(text.encode("utf-8", "replace") if isinstance(text, str) else text).decode()


def _started(limits: Limits) -> subprocess.Popen:
    """Start bubblewrap, from a thread that stays: bwrap's children die with the thread that started it."""
    global _launcher
    command, blocked = _command(limits), seccomp_filter()
    if blocked is None:
        raise SandboxError("The sandbox knows the system calls of x86_64 and aarch64 only: nothing runs here without.")
    with _lock:
        _launcher = _launcher or ThreadPoolExecutor(1, "sandbox")
        return _launcher.submit(_launch, command, blocked).result()


def _launch(command: list[str], blocked: bytes) -> subprocess.Popen:
    read, write = os.pipe()
    other = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        os.write(write, blocked)
        os.close(write)
        return subprocess.Popen(
            [command[0], "--seccomp", str(read), *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(read,),
            env={},
            cwd="/",
            bufsize=0,
            **other,  # type: ignore[call-overload]
        )
    except OSError as error:
        raise SandboxError(f"bubblewrap cannot be started ({error}).") from error
    finally:
        os.close(read)


def _command(limits: Limits) -> list[str]:
    """The command line of bwrap with the agent."""
    if (bwrap := shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin")) is None:
        raise SandboxError(
            "Programs of a model run in bubblewrap, which this machine lacks: run apt-get install bubblewrap; nothing "
            "runs without isolation."
        )
    if (python := next((one for one in _PYTHONS if os.access(one, os.X_OK)), None)) is None:
        raise SandboxError(f"The sandbox needs a Python at {' or '.join(_PYTHONS)}: run apt-get install python3.")
    links: list[str] = []
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        place = Path("/", name)
        if place.is_symlink():
            links += ["--symlink", f"usr/{name}", str(place)]
        elif place.is_dir():
            links += ["--ro-bind", str(place), str(place)]
    alone = "--unshare-all --unshare-user --disable-userns --die-with-parent --new-session --clearenv --as-pid-1"
    size = ["--size", str(limits.disk)]
    return [
        *(bwrap, *alone.split(), "--cap-drop", "ALL", "--hostname", "sandbox"),
        *("--ro-bind", "/usr", "/usr", *links),
        *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
        *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
        *("--proc", "/proc", "--dev", "/dev", "--size", str(2**20), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        *(*size, "--tmpfs", "/tmp", *size, "--tmpfs", "/work", "--remount-ro", "/"),
        *("--chdir", "/work", python, "-I", "-S", "-c", _agent(), json.dumps(vars(limits))),
    ]


def _agent() -> str:
    return Path(__file__).with_name("agent.py").read_text("utf-8")
