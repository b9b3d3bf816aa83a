"""All metrics of a run for the page's script: a column of numbers for each, and the columns that may be the x axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragen_lab.report.curves import intervals
from ragen_lab.report.reading import Run
from ragen_lab.report.trajectories import finite

from ragen_verl.names import GENERALISATION, HELD_OUT, HELD_OUT_SUCCESS, ROLLOUT, STEP_SECONDS, TEST_SECONDS, TRAIN

__all__ = ["MOST_ROWS", "columns", "in_order"]

MOST_ROWS = 800
"""About how many rows of a run the page holds, besides those with a held-out evaluation."""
_FIRST = (HELD_OUT, GENERALISATION, TRAIN, ROLLOUT)
_VERLS = (
    *("actor", "critic", "rollout_corr", "training", "val-core", "val-aux", "response", "response_length", "num_turns"),
    *("response_length_non_aborted", "prompt_length", "global_seqlen", "perf", "timing_s", "timing_per_token_ms"),
)


def in_order(runs: Sequence[Run]) -> list[str]:
    """The names of all metrics: this package's indicators first, then verl's, its times last."""
    return sorted({name for run in runs for name in _named(run)}, key=_rank)


def columns(run: Run) -> dict[str, Any]:
    """The columns of a run, all of one length; a missing number is None. A long run has about `MOST_ROWS` rows.

    Returns:
        `step`; `tokens` and `seconds`, summed up to each step; `values` (metric -> numbers with six digits); `ends`
        (low and high of the interval of held-out success, or None).
    """
    stride = -(-len(run.rows) // MOST_ROWS)
    tokens = seconds = 0.0
    kept: list[dict[str, Any]] = []
    found: dict[str, list[Any]] = {"step": [], "tokens": [], "seconds": [], "ends": []}
    ends = intervals(run)
    for number, row in enumerate(run.rows):
        tokens += row["perf/total_num_tokens"] if finite(row.get("perf/total_num_tokens")) else 0
        seconds += sum(row[name] for name in (STEP_SECONDS, TEST_SECONDS) if finite(row.get(name)))
        if number % stride == 0 or HELD_OUT_SUCCESS in row or number == len(run.rows) - 1:
            kept.append(row)
            for name, value in {"step": row["step"], "tokens": round(tokens), "seconds": round(seconds, 1)}.items():
                found[name].append(value)
            found["ends"].append(ends.get(row["step"]))
    return {**found, "values": {name: [_short(row.get(name)) for row in kept] for name in _named(run)}}


def _named(run: Run) -> dict[str, None]:
    """Metrics that have a number anywhere."""
    names: dict[str, None] = {}
    for row in run.rows:
        names |= dict.fromkeys(name for name, value in row.items() if name not in names and finite(value))
    return {name: None for name in names if name not in ("step", "time")}


def _rank(name: str) -> tuple[int, bool, str]:
    prefix = name.partition("/")[0]
    place = _FIRST.index(prefix) if prefix in _FIRST else len(_FIRST)
    place += 1 + _VERLS.index(prefix) if prefix in _VERLS else 0
    return place, "/non-zero/" in name or prefix == "verdict", name


def _short(value: Any) -> float | int | None:
    if not finite(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
