"""How often the verdict is wrong: warnings on healthy synthetic runs, and failures that get their name.

    python benchmarks/verdict_rates.py [--runs 20] [--write]

The families of runs stand in tests/helpers/synthetic_runs.py; thresholds were set with those of the tuning set alone.
`--write` saves benchmarks/results/verdict_rates.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from synthetic_runs import FAILURES, HELD_OUT, TUNING, Family, broken, changes, healthy  # noqa: E402

from ragen_verl.diagnostics.monitor import MonitorConfig, judge  # noqa: E402

NEEDED = {"collapsed": 0.1, "selection_bias": 0.1, "variance_death": 0.025}  # success rates: there must be some to lose
LENGTHS = (40, 100, 300, 1000)
SETS = {"tuning": (TUNING, 0), "held out": (HELD_OUT, 10_000)}  # families, first seed


def false_alarms(families: dict[str, Family], seed: int, runs: int) -> dict[str, Any]:
    """Judge `runs` healthy runs of each length and family; count warnings, collapses and their causes."""
    alarms, total = Counter(), 0
    for name, family in families.items():
        for steps in LENGTHS:
            for number in range(runs):
                config = MonitorConfig(changes=changes(family, steps))
                verdict = judge(healthy(family, seed + number, steps, probe=number % 2 == 0), config)
                total += 1
                if verdict.warned is not None:
                    first = verdict.primary.cause if verdict.primary and verdict.primary.warns else "collapsed"
                    alarms[f"{name}, {steps} steps: {first}"] += 1
    return {"runs": total, "alarms": alarms.total(), "which": dict(alarms)}


def power(families: dict[str, Family], seed: int, runs: int) -> dict[str, Any]:
    """Judge `runs` broken runs of each cause and family; count those whose cause was named."""
    found = {}
    for cause in FAILURES:
        named, total, missed = 0, 0, Counter()
        for name, family in families.items():
            if family.shape(np.array([0.25]))[0] < NEEDED.get(cause, 0):
                continue
            for number in range(runs):
                probe = number % 2 == 0 or "(" in cause  # causes that only the probe can see always have it
                verdict = judge(broken(family, cause, seed + number, probe=probe))
                causes = {one.cause for one in verdict.findings if one.warns}
                hit = verdict.collapsed is not None if cause == "collapsed" else cause.split(" (")[0] in causes
                named, total = named + hit, total + 1
                missed[name] += not hit
        found[cause] = {"runs": total, "named": named, "missed": dict(+missed)}
    return found


def measure(runs: int) -> dict[str, Any]:
    """Both rates for both sets of families."""
    return {
        name: {"healthy": false_alarms(families, seed, runs), "broken": power(families, seed, runs)}
        for name, (families, seed) in SETS.items()
    }


def table(rates: dict[str, Any]) -> Table:
    """The rates in per cent."""
    out = Table("run", *rates, box=None)
    cells = [f"{100 * one['healthy']['alarms'] / one['healthy']['runs']:.1f} %" for one in rates.values()]
    out.add_row("healthy, with an alarm", *cells)
    for cause in FAILURES:
        parts = [one["broken"][cause] for one in rates.values()]
        out.add_row(f"{cause}, named", *(f"{100 * part['named'] / part['runs']:.1f} %" for part in parts))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each family, and of each length or cause")
    parser.add_argument("--write", action="store_true", help="save the rates")
    given = parser.parse_args()
    rates = measure(given.runs)
    Console().print(table(rates))
    print(json.dumps({name: (one["healthy"]["which"]) for name, one in rates.items()}, indent=1))
    print({name: {cause: found["missed"] for cause, found in one["broken"].items()} for name, one in rates.items()})
    if given.write:
        file = ROOT / "benchmarks" / "results" / "verdict_rates.json"
        file.write_text(json.dumps({"runs": given.runs, **rates}, indent=1) + "\n")


if __name__ == "__main__":
    main()
