"""The lock of a run's folder: one run at a time writes in it, and a run ends with the command that started it.

The lock is the kernel's (`flock`), so it is free again however its process ended; the file names the process. The
command `ragen-verl train` has it. verl's main, which does the training, waits for it: it gets the lock only if the
command is gone, and then ends the run. Started without the command, verl's main has the lock itself.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from ragen_verl.errors import RecipeError

__all__ = ["ENDING", "check", "hold", "is_held", "taken"]

_FILE = "run.lock"
_COMMAND = "RAGEN_VERL_COMMAND"
"""The environment variable with the process number of the command that watches a run."""

_TRIES = 5
"""A look at the lock (`is_held`) takes it for a moment."""

ENDING = ((signal.SIGINT, 15.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))
"""The signals that end a run, and the seconds that each has."""

_held: dict[Path, int] = {}
"""Folder -> file descriptor, of the locks of this process."""


@contextmanager
def taken(folder: Path) -> Iterator[None]:
    """A context in which this process trains in `folder`, and no other.

    Raises:
        RecipeError: another one does.
    """
    _take(folder)
    os.environ[_COMMAND] = str(os.getpid())
    try:
        yield
    finally:
        os.close(_held.pop(folder))


def hold(folder: Path) -> None:
    """Keep the lock until this process ends, or end the run as soon as the command that has it is gone.

    Raises:
        RecipeError: another run has it.
    """
    if folder in _held:
        return
    folder.mkdir(parents=True, exist_ok=True)
    if os.environ.get(_COMMAND) and _named(folder).startswith(f"{os.environ[_COMMAND]} ") and is_held(folder):
        Thread(target=_follow, args=(folder,), daemon=True).start()
    else:
        _take(folder)


def check(folder: Path) -> None:
    """Refuse a folder in which a run is active.

    Raises:
        RecipeError: with the process that it belongs to.
    """
    if is_held(folder):
        number, _, host = _named(folder).partition(" ")
        raise RecipeError(
            f"A run is active in {folder} (process {number} on {host}): wait until it has ended, end it with "
            f"`kill {number}`, or name another folder."
        )


def is_held(folder: Path) -> bool:
    """Whether a run is active in a folder; False where the file system has no locks."""
    if folder in _held:
        return True
    with suppress(OSError), (folder / _FILE).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _take(folder: Path) -> None:
    file = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT, 0o644)
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if not left:
                os.close(file)
                check(folder)
                return _take(folder)  # it has just ended
            time.sleep(0.05)
        except OSError:  # a file system without locks
            break
    _keep(folder, file)


def _keep(folder: Path, file: int) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()} {socket.gethostname()}".encode(), 0)
    _held[folder] = file


def _named(folder: Path) -> str:
    with suppress(OSError):
        return (folder / _FILE).read_text(errors="replace")
    return ""


def _follow(folder: Path) -> None:
    """Wait until the command is gone, and end this run with all that it started."""
    command = os.environ[_COMMAND]
    file = os.open(folder / _FILE, os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    _keep(folder, file)
    with suppress(OSError):
        (folder / "error.txt").write_text(f"Stopped: its command (process {command}) was killed.\n")
    group = os.getpgrp()
    for sign, patience in ENDING:
        if group == os.getpid():  # the command made it the leader of a group with all of Ray's processes
            os.killpg(group, sign)
        else:
            os.kill(os.getpid(), sign)
        time.sleep(patience)
