"""Run the parts one after the other, each in a process that is ended together with all processes that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from ragen_lab.qualify import timetable
from ragen_lab.qualify.findings import Outcome, Status

from ragen_verl.doctor.facts import PACKAGES, TIMEOUTS, run_probe
from ragen_verl.errors import RecipeError, nearest
from ragen_verl.machine import nvidia_smi, version

__all__ = ["Kit", "check", "environment"]

_PATIENCE = 40.0
"""Seconds between asking a part to end and killing it: a run's own cluster takes 25 to come down."""


@dataclass(frozen=True)
class Kit:
    """A run of the kit in a folder; a run that is in the folder is continued.

    Attributes:
        out: the folder: parts/, logs/, models/, runs/, qualify.json, qualify.html.
        device: "cuda" or "cpu".
        minutes: one of `timetable.MINUTES`.
    """

    out: Path
    device: str
    minutes: int

    def identity(self) -> dict[str, Any]:
        """The properties that must be unchanged for finished parts to be kept."""
        versions = {name: version(name) for name in PACKAGES}
        return {"device": self.device, "minutes": self.minutes, "gpus": _gpus(self.device), "versions": versions}

    def run(self, only: Sequence[str], said: Callable[[Outcome], None], limits: dict[str, float] | None = None) -> None:
        """Run the missing parts; after a part that fails or is ended the others still run.

        Args:
            only: names of the parts.
            said: called with each part's outcome.
            limits: part -> seconds after which it is ended; the plan's limit for all others.
        """
        for folder in ("parts", "logs", "models", "runs"):
            (self.out / folder).mkdir(parents=True, exist_ok=True)
        identity, file = self.identity(), self.out / "identity.json"
        if not file.exists() or json.loads(file.read_text("utf-8")) != identity:
            for old in (self.out / "parts").glob("*.json"):
                old.unlink()
        file.write_text(json.dumps(identity, indent=1) + "\n")
        for name in only:
            before = Outcome.read(self.file(name))
            if before and before.status in (Status.PASS, Status.SKIPPED):
                said(before)
                continue
            said(self._part(name, (limits or {}).get(name, timetable.limit(name, self.minutes))))

    def file(self, name: str) -> Path:
        """The file of a part's outcome."""
        return self.out / "parts" / f"{name}.json"

    def outcomes(self) -> list[Outcome]:
        """The outcomes of the parts that were run, in the plan's order; those that were cut short are SKIPPED."""
        found = [outcome for name in timetable.PARTS if (outcome := Outcome.read(self.file(name)))]
        for one in found:
            if one.status is Status.RUNNING:
                one.skip("It was stopped before its end; what it had measured is kept.")
        return found

    def report(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {**self.identity(), "parts": [{**asdict(one), "status": str(one.status)} for one in self.outcomes()]}

    def _part(self, name: str, limit: float) -> Outcome:
        gpus = _gpus(self.device)
        memory = min((gpu["memory_gb"] for gpu in gpus), default=0.0)
        settings = timetable.settings(name, self.minutes, self.device, memory)
        settings |= {"models": str(self.out / "models"), "runs": str(self.out / "runs"), "gpus": gpus}
        file, start = self.file(name), time.monotonic()
        file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "ragen_lab.qualify.part", name, str(file), json.dumps(settings)]
        with (self.out / "logs" / f"{name}.txt").open("w") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment(self.device), start_new_session=True
            )
            try:
                process.wait(limit)
                ended = ""
            except subprocess.TimeoutExpired:
                ended = f"It was ended after its limit of {limit:.0f} s; what it had measured is kept."
            finally:
                _end(process)
        outcome = Outcome.read(file) or Outcome(name)
        outcome.seconds = round(time.monotonic() - start, 1)
        if outcome.status is Status.RUNNING:
            outcome.status = Status.FAIL
            outcome.sentence = ended or f"Its process ended with code {process.returncode}; see logs/{name}.txt."
        outcome.write(file)
        return outcome


def environment(device: str) -> dict[str, str]:
    """The environment of a part's process: without the hub, and with verl's own switch for the CPU."""
    own = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if device == "cpu":
        own["VERL_PLATFORM"] = "cpu"
    return {**os.environ, **own}


def _end(process: subprocess.Popen) -> None:
    """End a part's process and all processes that it started, in any session: first by a request, then by a kill."""
    with suppress(psutil.NoSuchProcess):
        family = list(_family(process.pid))
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
        family += [one for one in _family(process.pid) if one not in family]
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()  # psutil compares start times, so that a number in use again is another process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _family(number: int) -> Iterator[psutil.Process]:
    """The descendants of a process, and all processes in its session or in those of the descendants."""
    sessions = {number}
    with suppress(psutil.NoSuchProcess):
        for one in psutil.Process(number).children(recursive=True):
            with suppress(ProcessLookupError):
                sessions.add(os.getsid(one.pid))
            yield one
    for one in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError):
            if one.pid != number and os.getsid(one.pid) in sessions:
                yield one


@cache
def _gpus(device: str) -> list[dict[str, Any]]:
    """Name and GB (10^9 bytes) of each GPU, by torch in a process of its own."""
    if device == "cpu":
        return []
    found = run_probe("torch_build", TIMEOUTS["torch_build"]).answer.get("gpus", [])
    return [{"name": gpu["name"], "memory_gb": round(gpu["memory_gb"] * 2**30 / 1e9, 1)} for gpu in found]


def check(device: str | None, minutes: int, only: Sequence[str]) -> tuple[str, list[str]]:
    """The device and the parts that a command line asks for.

    Raises:
        RecipeError: there is no such part, device or number of minutes, or no GPU.
    """
    if minutes not in timetable.MINUTES:
        raise RecipeError(f"--minutes is {minutes}: use {', '.join(map(str, timetable.MINUTES))}.")
    if unknown := [name for name in only if name not in timetable.PARTS]:
        raise RecipeError(f"--only names {unknown[0]!r}, which is no part: {nearest(unknown[0], timetable.PARTS)}")
    device = device or ("cuda" if nvidia_smi() else "cpu")
    if device not in timetable.DEVICES:
        raise RecipeError(f"--device is {device}: use cuda or cpu.")
    if device == "cuda" and not nvidia_smi():
        raise RecipeError(
            "--device is cuda but the driver lists no GPU: use --device cpu, or look at `ragen-verl doctor`."
        )
    return device, [name for name in timetable.PARTS if name in only or not only]
