"""One part in this process, as the kit starts it.

python -m ragen_lab.qualify.part NAME FOLDER SETTINGS   # settings: JSON
"""

from __future__ import annotations

import gc
import importlib
import json
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from ragen_lab.qualify.findings import Outcome, Status
from ragen_lab.qualify.timetable import PARTS

from ragen_verl import switch

__all__ = ["run"]


def run(name: str, file: Path, settings: dict[str, Any]) -> Outcome:
    """Run a part and write its outcome, even while it runs; an exception becomes FAIL.

    Args:
        name: a name in `PARTS`.
        file: the file of the outcome.
        settings: the part's settings; `save` is added, which writes the outcome so far.
    """
    outcome, start = Outcome(name), time.monotonic()

    def save() -> None:
        outcome.seconds = round(time.monotonic() - start, 1)
        outcome.write(file)

    save()
    try:
        module = importlib.import_module(f"ragen_lab.qualify.{PARTS[name].module}")
        gc.freeze()  # verl collects garbage several times for each worker; imported objects need not be visited
        module.run(outcome, {**settings, "save": save})
    except Exception as error:
        traceback.print_exc()
        says = (str(error).strip().splitlines() or [""])[-1][:300]
        outcome.status, outcome.sentence = Status.FAIL, f"{type(error).__name__}: {says}"
    save()
    return outcome


def _end(number: int, frame: Any) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    switch.turn_on()
    signal.signal(signal.SIGTERM, _end)  # so that the part's own clean-up ends the processes that it started
    run(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
