"""How often the causes of runs with tools are named wrongly or missed: scripted policies in real environments.

    python benchmarks/call_causes.py [--runs 20] [--write]

The policies stand in tests/helpers/tool_runs.py; the thresholds were looked at with those of its tuning set alone.
`--write` saves benchmarks/results/call_causes.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from tool_runs import HELD_OUT, KINDS, TUNING, World, run  # noqa: E402

from ragen_verl.diagnostics import calls as calls  # noqa: E402 (registers the causes)
from ragen_verl.diagnostics.monitor import judge  # noqa: E402

CAUSES = KINDS[1:]


def rates(worlds: dict[str, World], first: int, runs: int) -> dict[str, Any]:
    """For each kind of run: how many, how many got a warning of each of the two causes, and which worlds were wrong."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        named, wrong = dict.fromkeys(CAUSES, 0), []
        for name, world in worlds.items():
            for number in range(runs):
                verdict = judge(run(world, kind, first + number))
                causes = {one.cause for one in verdict.findings if one.warns} & set(CAUSES)
                for one in causes:
                    named[one] += 1
                if causes != {kind} - {"healthy"}:
                    wrong.append(f"{name}: {', '.join(sorted(causes)) or 'none'}")
        found[kind] = {"runs": len(worlds) * runs, "named": named, "wrong": {one: wrong.count(one) for one in wrong}}
    return found


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each world and kind")
    parser.add_argument("--write", action="store_true", help="save the rates")
    given = parser.parse_args()
    found = {"tuning": rates(TUNING, 0, given.runs), "held out": rates(HELD_OUT, 10_000, given.runs)}
    print(json.dumps(found, indent=1))
    if given.write:
        (ROOT / "benchmarks" / "results" / "call_causes.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
