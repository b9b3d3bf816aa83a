"""Write files of a run on a disk that may be full: none is left incomplete, and the error names the file."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["append", "full", "naming", "replace", "shortage"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_PROBE = 1 << 20
"""A disk that takes this many bytes is not full; torch fails to write a file well before this little is left."""

_SAID = re.compile("|".join(re.escape(os.strerror(number)) for number in _FULL))
_TORCH = re.compile(r"PytorchStreamWriter|inline_container")  # torch does not say why it could not write


def replace(file: Path, text: str) -> None:
    """Write a file in one piece: a reader sees the old text or the new one, even after a failure.

    Raises:
        OSError: it cannot be written; with the file's name.
    """
    beside = file.with_name(f"{file.name}.tmp")
    try:
        with naming(file):
            beside.write_text(text, encoding="utf-8")
            os.replace(beside, file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def append(file: Path, text: str) -> None:
    """Add text to a file's end: all of it, or nothing.

    Raises:
        OSError: it cannot be written; with the file's name.
    """
    with naming(file), file.open("ab", buffering=0) as out:
        before, left = out.tell(), memoryview(text.encode())
        try:
            while left:
                left = left[out.write(left) :]
        except OSError:
            with suppress(OSError):
                out.truncate(before)
            raise


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """While open, an error of the system that names no file gets this one's name."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(file)) from error


def full(folder: Path) -> bool:
    """Whether the disk of a folder takes no more, by quota or because there is no room."""
    probe = folder / f".room-{os.getpid()}"
    try:
        with probe.open("wb", buffering=0) as file:
            left = _PROBE
            while left:
                left -= file.write(bytes(left)) or 0
    except OSError as error:
        return error.errno in _FULL
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return False


def shortage(error: BaseException, path: Path) -> OSError | None:
    """What a full disk did, in words that name a path.

    Args:
        error: what ended a part of a run; Ray's error of a worker included.
        path: the folder that was written to, whose disk is looked at.

    Returns:
        None where the disk was not the reason, or where the error says already which file there was no room for.
    """
    chain = list(_chain(error))
    system = [one for one in chain if isinstance(one, OSError) and one.errno in _FULL]
    if any(one.filename for one in system):
        return None
    said = bool(system) or any(_SAID.search(str(one)) for one in chain)
    if not said and not (any(_TORCH.search(str(one)) for one in chain) and full(path)):
        return None
    number = next((one.errno for one in system), errno.ENOSPC)
    return OSError(number, os.strerror(number), str(path))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it came from: Python's, and the worker's that Ray keeps in `cause`."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__, getattr(one, "cause", None)]
