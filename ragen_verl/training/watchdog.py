"""End a run that would wait forever: verl has no time limit for a hung engine, or for episodes of a dead worker."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray

__all__ = ["LOOK_SECONDS", "STALLED", "Watchdog"]

STALLED = 70
"""Exit code of the trainer's process (EX_SOFTWARE)."""

LOOK_SECONDS = 5


class Watchdog(threading.Thread):
    """A thread that ends this process if a part of a step takes too long or an actor is dead; Ray ends the others.

    It writes the cause to a file, and the stack of each thread to stderr.

    Args:
        minutes: the time that a part of a step may take; 0 sets no limit.
        file: the file for the cause.
    """

    def __init__(self, minutes: float, file: Path) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.minutes, self.file = minutes, file
        self._expected: tuple[str, float] | None = None
        self._calls: dict[Any, Any] = {}

    def expect(self, what: str) -> None:
        """Restart the time; `what` describes in a few words what the trainer now waits for."""
        self._expected = what, time.monotonic()
        if self.minutes:
            self._watch()

    def look_after(self, actors: Iterable[Any]) -> None:
        """Watch these Ray actors from now on; they must not die."""
        self._calls = {actor: actor.__ray_ready__.remote() for actor in actors}
        self._watch()

    def rest(self) -> None:
        """Stop watching: nothing is waited for, and actors may end."""
        self._expected, self._calls = None, {}

    def run(self) -> None:
        """Check every few seconds until the process ends."""
        while (reason := self._reason()) is None:
            time.sleep(LOOK_SECONDS)
        with suppress(OSError):  # a full disk must not keep the process alive
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(f"{reason} The log says where the trainer stood.\n")
        print(reason, file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
        os._exit(STALLED)

    def _watch(self) -> None:
        if self.ident is None:
            self.start()

    def _reason(self) -> str | None:
        """The reason why the run cannot continue, or None."""
        if self._expected and self.minutes:
            what, since = self._expected
            if time.monotonic() - since > 60 * self.minutes:
                limit = f"{self.minutes:g} minutes (ragen.run.stall_minutes)"
                return f"StalledError: {what} took more than {limit}. What the workers said is in Ray's logs."
        for actor, call in list(self._calls.items()):
            if ray.wait([call], timeout=0)[0]:
                try:
                    ray.get(call)
                except ray.exceptions.ActorUnavailableError:
                    pass  # for a moment, or until Ray knows that its node is gone
                except ray.exceptions.RayActorError as error:
                    return f"WorkerDiedError: {actor}: {_told(str(error))}"
                self._calls[actor] = actor.__ray_ready__.remote()
        return None


def _told(error: str) -> str:
    """What Ray says of an actor's death in one line: what happened, and on which machine if its node has died."""
    first, *details = (line.strip() for line in error.splitlines())
    of_node = [line for line in details if line.startswith(("ip:", "The actor died because its node"))]
    return " ".join([first, *of_node]) if len(of_node) > 1 else first
