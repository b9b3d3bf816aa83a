"""Play the same episodes in another process, which has other hash salts and has played nothing else.

`python -m ragen_lab.checker.other_process` reads a list of requests from stdin and answers each with a JSON line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ragen_lab.checker.calls import Broken, Calls
from ragen_lab.checker.record import episode, fingerprint
from ragen_lab.checker.subject import Subject

__all__ = ["fingerprints", "prints"]

_START_SECONDS = 60.0
"""The time that the process may take in addition to the calls of the environments."""


def fingerprints(subjects: Sequence[Subject], seeds: int, steps: int, limit: float) -> list[dict[str, Any]]:
    """For each subject `{"prints": [...]}`, an entry per seed, or `{"error": why}`, from one fresh process.

    Args:
        subjects: each of them must be reachable.
        seeds: the number of episodes of each; their seeds count from 0.
        steps: the highest number of actions in an episode.
        limit: the seconds that a call may take in that process.
    """
    requests = [{**subject.request(), "seeds": seeds, "steps": steps, "limit": limit} for subject in subjects]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path), PYTHONHASHSEED="1")
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(requests),
            capture_output=True,
            text=True,
            env=environment,
            timeout=_START_SECONDS + limit * len(requests),
        )
        lines, reason = done.stdout.splitlines(), f"it ended with code {done.returncode}: {done.stderr.strip()[-300:]}"
    except subprocess.TimeoutExpired as late:
        out = late.stdout or ""
        lines, reason = (out if isinstance(out, str) else out.decode()).splitlines(), "it did not end in time"
    # other lines are output of an environment
    answers = [json.loads(line)["check"] for line in lines if line.startswith('{"check": ')]
    return answers + [{"error": reason}] * (len(requests) - len(answers))


def prints(subject: Subject, seeds: int, steps: int, calls: Calls) -> list[str]:
    """The fingerprints of a subject's first episodes in this process."""
    subject.prepare()
    env = calls.build(subject.build)
    found = [fingerprint(list(episode(env, seed, seed % 3, steps, calls))) for seed in range(seeds)]
    calls.close_all()
    return found


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request, in the other process."""
    calls = Calls(request["limit"], backstop=True)
    try:
        subject = Subject.from_request(request)
        return {"prints": calls.supervised(lambda: prints(subject, request["seeds"], request["steps"], calls))}
    except Broken as broken:
        return {"error": broken.what}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    for one in json.load(sys.stdin):
        print(json.dumps({"check": _answer(one)}), flush=True)
    os._exit(0)  # a call that hangs must not keep the process alive
