"""What every sandbox offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragen_verl.errors import RecipeError

__all__ = ["Limits", "Result", "Sandbox", "SandboxError", "kept"]


class SandboxError(RecipeError):
    """A sandbox cannot isolate on this machine, or is no longer there."""


@dataclass(frozen=True)
class Limits:
    """What the programs of a sandbox may use.

    Attributes:
        seconds: the time of one run, in seconds of the clock and of the processor.
        memory: bytes of all processes together.
        processes: processes and threads at the same time.
        disk: bytes of the files in the working directory, and as many in /tmp.
        output: bytes of output that a run's result keeps; the middle of more is left out. A run that prints 100 times
            as much is ended.
    """

    seconds: float = 10.0
    memory: int = 512 * 2**20
    processes: int = 64
    disk: int = 64 * 2**20
    output: int = 64 * 2**10

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
                raise RecipeError(f"The sandbox's {name} is {value!r}: set a number above 0.")


@dataclass(frozen=True)
class Result:
    """The end of a run.

    Attributes:
        output: what the program wrote to its standard output and error output, decoded, within `Limits.output`.
        code: the exit code; the negative number of the signal that killed it.
        stopped: why the sandbox ended it: "" if it did not, "time", "memory" or "output".
        seconds: how long it ran.
    """

    output: str
    code: int
    stopped: str
    seconds: float


class Sandbox(ABC):
    """A place of its own for programs and their files. One thread at a time may use it."""

    @classmethod
    @abstractmethod
    def open(cls, limits: Limits) -> Sandbox:
        """Start one; raise SandboxError where it cannot isolate."""

    @abstractmethod
    def run(self, argv: Sequence[str], stdin: str = "", seconds: float | None = None) -> Result:
        """Run a program and end everything that it started.

        Args:
            argv: the program and its arguments; no shell reads them.
            stdin: its standard input.
            seconds: the time it may take; None, or more than the limits have, takes that of the limits.

        Raises:
            SandboxError: the sandbox is gone; open another one.
        """

    @abstractmethod
    def write(self, path: str, text: str | bytes) -> None:
        """Write a file of the sandbox, with the folders above it; raise OSError like `open`."""

    @abstractmethod
    def read(self, path: str, most: int = 2**20) -> bytes:
        """Return the first `most` bytes of a regular file of the sandbox; raise OSError like `open`."""

    @abstractmethod
    def close(self) -> None:
        """End all its processes and remove its files; may be called twice."""

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def kept(head: bytes, tail: bytes, total: int) -> str:
    """The text of an output of `total` bytes, of which the first and the last ones are known."""
    left_out = total - len(head) - len(tail)
    middle = f"\n... {left_out} bytes left out ...\n" if left_out else ""
    return head.decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace")
