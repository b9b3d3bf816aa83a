"""What an evaluation's policies achieved: a row for each policy, split and environment, and its saved comparisons."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragen_lab.report.reading import Run
from ragen_lab.report.trajectories import EXCLUDED, SOLVED, finite
from ragen_lab.statistics import Estimate, grouped, rate

__all__ = ["Played", "comparisons", "played"]


@dataclass(frozen=True)
class Played:
    """The episodes of a policy in one environment; means are over episodes, the interval is over initial states."""

    run: Run
    where: str
    episodes: int
    states: int
    success: Estimate
    ret: float | None
    turns: float
    valid: float


def played(run: Run) -> Iterator[Played]:
    """A row for each split and environment, without episodes whose environment or engine failed."""
    for (split, _), records in run.played.items():
        counted = [one for one in records if one["outcome"] != EXCLUDED]
        for env, some in grouped(counted, lambda one: one["env"]).items():
            states = grouped(some, lambda one: one["seed"])
            turns = [turn for one in some for turn in one["turns"]]
            returns = [one["return"] for one in some if one["return"] is not None]
            yield Played(
                run=run,
                where=f"{split}/{env}",
                episodes=len(some),
                states=len(states),
                success=rate([[one["outcome"] == SOLVED for one in episodes] for episodes in states.values()]),
                ret=sum(returns) / len(returns) if returns else None,
                turns=len(turns) / len(some),
                valid=sum(turn["format_ok"] and turn["valid"] for turn in turns) / max(1, len(turns)),
            )


def comparisons(runs: Sequence[Run]) -> list[str]:
    """What the results.json of evaluations has beside the rows, as sentences: comparisons, time, tokens and cost."""
    folders = dict.fromkeys(run.folder.path.parent for run in runs if run.policy)
    found = []
    for folder in folders:
        try:
            saved = json.loads((folder / "results.json").read_text("utf-8"))
            rows = saved.get("compared")
            for one in rows if isinstance(rows, list) else []:
                by = one["difference"]
                within = f" ({by['low']:+.3f} to {by['high']:+.3f})" if finite(by["low"]) and finite(by["high"]) else ""
                found.append(
                    f"{one['policy']} against {one['with']} in {one['environment']}: success {by['value']:+.3f}"
                    f"{within}, p = {one['p_value']:.2g} over {by['states']} initial states."
                )
            found += map(str, saved.get("costs", ()))
        except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
            continue
    return found
