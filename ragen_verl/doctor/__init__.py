"""The doctor: it reports versions, the machine, the processes in which the plugin loads, and how to fix problems.

`facts.gather` collects facts; `problems.find` judges them without access to the machine, so that tests can use invented
facts. Nothing here imports torch, verl, Ray or vLLM: checks that need them run in their own processes (`probes`).
"""

import json
from functools import cache
from pathlib import Path

__all__ = ["RECORD", "recorded"]

RECORD = Path(__file__).with_name("seams.json")


@cache
def recorded() -> dict:
    """`verl`: the tested version; `seams`: the result of `seams.installed` for it."""
    return json.loads(RECORD.read_text("utf-8"))
