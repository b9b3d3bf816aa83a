"""The process with number 1 inside a sandbox: it runs programs and reads and writes files as the host asks for.

It runs in the sandbox's own Python, with the standard library alone. A request and its answer are one line of JSON
each. Nothing inside can kill or look into it: the kernel shields the first process of a namespace from its own signals,
and it is not dumpable. It ends, and everything in the sandbox with it, when its standard input ends.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import resource
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

__all__ = ["main"]

_HOME = "/work"
_PR_SET_DUMPABLE = 4
_LOOK_S = 0.1  # how often time and memory are looked at
_TIMES = 100  # a run that prints this many times the output that is kept is ended
_BLOCK = 2**16


def main() -> None:
    """Answer the host's requests until it is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    limits = json.loads(sys.argv[1])
    _answer(**_facts())
    for line in iter(sys.stdin.buffer.readline, b""):
        request = json.loads(line)
        try:
            _answer(**_DO[request.pop("do")](limits, **request))
        except OSError as error:
            _answer(error=[error.errno or 0, error.strerror or str(error)])
        except (ValueError, subprocess.SubprocessError) as error:  # a null byte; limits that leave no room to start
            _answer(error=[22, str(error)])


def _answer(**data: object) -> None:
    """Send one answer."""
    sys.stdout.buffer.write(json.dumps(data).encode() + b"\n")
    sys.stdout.buffer.flush()


def _facts() -> dict:
    """What the host checks before it trusts the sandbox."""
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return {
        "pid": os.getpid(),
        "capabilities": int(status["CapEff"], 16) | int(status["CapBnd"], 16),
        "no_new_privileges": int(status["NoNewPrivs"]),
        "seccomp": int(status["Seccomp"]),
        "network": [name for _, name in socket.if_nameindex()],
        "environment": sorted(os.environ),
        "root": sorted(os.listdir("/")),
    }


def _run(limits: dict, argv: list, stdin: str, seconds: float) -> dict:
    """Run a program; see `Sandbox.run`."""

    def limited() -> None:
        whole = int(seconds) + 1
        for name, value in (
            (resource.RLIMIT_NPROC, limits["processes"]),
            (resource.RLIMIT_AS, limits["memory"]),
            (resource.RLIMIT_CPU, whole),
            (resource.RLIMIT_NOFILE, 256),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_MEMLOCK, 0),
            (resource.RLIMIT_MSGQUEUE, 0),
        ):
            resource.setrlimit(name, (value, value))

    (out, into), child = os.pipe(), None
    started = time.monotonic()
    try:
        with tempfile.TemporaryFile() as given:  # a file, so that a program that does not read it holds nobody up
            given.write(base64.b64decode(stdin))
            given.seek(0)
            child = subprocess.Popen(
                argv,
                stdin=given,
                stdout=into,
                stderr=into,
                preexec_fn=limited,
                start_new_session=True,
                cwd=_HOME,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": _HOME, "LANG": "C.UTF-8"},
            )
        os.set_blocking(out, False)
        found = _watched(limits, child.pid, out, started, seconds)
    finally:
        code = _end_all(child)
        os.close(into)
        os.close(out)
    return {**found, "code": code, "seconds": time.monotonic() - started}


def _watched(limits: dict, pid: int, out: int, started: float, seconds: float) -> dict:
    """Read the output of a process until it ends or uses more than it may."""
    end = os.pidfd_open(pid)
    poll = select.poll()
    for fd in (0, out, end):
        poll.register(fd, select.POLLIN)
    most, head, tail, total, looked, stopped, over = limits["output"], b"", b"", 0, started, "", False
    while not over and not stopped:
        ready = dict(poll.poll(1000 * max(0.0, min(started + seconds - time.monotonic(), _LOOK_S))))
        if 0 in ready:  # the host sends nothing meanwhile, so it is gone
            os._exit(0)
        over = end in ready
        for block in _blocks(out):
            room = max(0, most // 2 - len(head))
            head, tail, total = head + block[:room], (tail + block[room:])[-(most // 2) :], total + len(block)
        now = time.monotonic()
        if total > most * _TIMES:
            stopped = "output"
        elif now > started + seconds and not over:
            stopped = "time"
        elif now > looked + _LOOK_S:
            looked, stopped = now, "memory" if _memory() > limits["memory"] else ""
    os.close(end)
    texts = {"head": head, "tail": tail}
    return {**{k: base64.b64encode(v).decode() for k, v in texts.items()}, "total": total, "stopped": stopped}


def _blocks(out: int) -> Iterator[bytes]:
    """What a pipe holds now, at most a megabyte."""
    for _ in range(16):
        try:
            block = os.read(out, _BLOCK)
        except BlockingIOError:
            return
        if not block:
            return
        yield block


def _memory() -> int:
    """Bytes of memory of all processes but this one; what several share counts once."""
    total = 0
    for pid in os.listdir("/proc"):
        if pid.isdecimal() and pid != "1":
            try:
                with open(f"/proc/{pid}/smaps_rollup") as file:
                    total += sum(1024 * int(line.split()[1]) for line in file if line.startswith("Pss:"))
            except PermissionError:  # it hides itself, so what it shares counts in full
                with open(f"/proc/{pid}/statm") as file:
                    total += int(file.read().split()[1]) * resource.getpagesize()
            except OSError:  # it has ended
                pass
    return total


def _end_all(child: subprocess.Popen | None) -> int:
    """Kill every process but this one, at once; return the exit code of the run."""
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    code = child.wait() if child else 0
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return code


def _write(limits: dict, path: str, data: str) -> dict:
    """Write a file; see `Sandbox.write`."""
    place = os.path.join(_HOME, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with os.fdopen(_regular(place, os.O_WRONLY | os.O_CREAT), "wb") as file:
        file.truncate()
        file.write(base64.b64decode(data))
    return {}


def _read(limits: dict, path: str, most: int) -> dict:
    """Read a file; see `Sandbox.read`."""
    with os.fdopen(_regular(os.path.join(_HOME, path), os.O_RDONLY), "rb") as file:
        return {"data": base64.b64encode(file.read(most)).decode()}


def _regular(path: str, how: int) -> int:
    """Open a regular file; a named pipe or a device would wait forever."""
    fd = os.open(path, how | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(22, "no regular file")
    return fd


_DO: dict[str, Callable[..., dict]] = {"run": _run, "write": _write, "read": _read}

if __name__ == "__main__":
    main()
