"""CPU seconds that the commands take which look, refuse or check: user and system time of the whole process.

    python benchmarks/starts.py [--rounds 3]

The least of some rounds counts, and `import torch` in the same run is the yardstick: on another machine, or on one that
is busy, all of them grow together. The run that is looked at is written by benchmarks/report_page.py's own writer.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from report_page import write_run

RESULT = Path(__file__).parent / "results" / "starts.json"
MODULE = ("-m", "ragen_verl")


def spent(arguments: tuple[str, ...], rounds: int) -> float:
    """The least CPU seconds of a Python with these arguments and of all its children that have ended."""
    found = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return round(min(found), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as scratch:
        run = write_run(Path(scratch) / "runs" / "one", tokens=False).path
        commands = {
            "import torch": ("-c", "import torch"),
            "--version": (*MODULE, "--version"),
            "--help": (*MODULE, "--help"),
            "recipes": (*MODULE, "recipes"),
            "show": (*MODULE, "show", str(run), "--limit", "1"),
            "runs list": (*MODULE, "runs", "list", str(run.parent)),
            "report": (*MODULE, "report", str(run), "--trajectories", "64"),
            "a recipe that is none": (*MODULE, "train", "nano/frozen_like"),
            "a setting that is none": (*MODULE, "train", "nano/frozen_lake", "ragen.rollout.max_turn=3"),
            "doctor --quick": (*MODULE, "doctor", "--quick"),
            "doctor": (*MODULE, "doctor"),
        }
        found = {}
        for name, arguments in commands.items():
            found[name] = spent(arguments, 1 if name == "doctor" else rounds)
            print(f"{name:24} {found[name]:6.2f} s", flush=True)
    RESULT.write_text(json.dumps({"rounds": rounds, "cpu_seconds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
