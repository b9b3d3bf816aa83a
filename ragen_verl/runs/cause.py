"""The cause of a run's failure in one sentence, from its traceback or its log."""

from __future__ import annotations

import re
import signal

__all__ = ["cause", "ending"]

_PREFIX = re.compile(r"^(\x1b\[\d*m)*\([\w.: ]+pid=\d+[^)]*\)(\x1b\[\d*m)* ?")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Timeout|Failure|Refused)\w*(\(\w+\))?: .")
_BARE = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt)$")
_HINTS = ("Set the environment variable", "full_key")
# exceptions that only report another one, which is printed before them
_WRAPPERS = re.compile(
    r"InstantiationException|RayTaskError|ActorDied|ActorUnavailable|WorkerCrashed|EngineDead|HydraException|"
    r"Engine core initialization failed|See root cause above"
)


def cause(text: str) -> str:
    """The exception that ended a run.

    Args:
        text: a traceback, or a log with tracebacks; lines may begin with Ray's prefixes and colours.

    Returns:
        The last exception that does not merely report another one, else the last line, else "no message".
    """
    lines = [_PREFIX.sub("", _COLOUR.sub("", line)).rstrip() for line in text.splitlines()]
    found = [(i, line) for i, line in enumerate(lines) if _EXCEPTION.match(line) or _BARE.match(line)]
    own = [one for one in found if not _WRAPPERS.search(one[1])]
    if not own:
        said = [line for line in lines if line.strip() and not line.startswith(_HINTS)]
        return found[-1][1] if found else said[-1].strip() if said else "no message"
    at, line = own[-1]
    if line.endswith(":") and at + 1 < len(lines):
        line = f"{line} {lines[at + 1].strip()}"
    return line


def ending(code: int) -> str:
    """An exit code in words: "exit code 1", "killed by SIGKILL, as the kernel does when memory runs out"."""
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"killed by {name}" + (", as the kernel does when memory runs out" if name == "SIGKILL" else "")
