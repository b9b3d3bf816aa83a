"""The results of an evaluation: one table row for each environment and split, and policies compared state by state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from ragen_lab.markdown import table as markdown_table
from ragen_lab.statistics import Comparison, Estimate, grouped, mean, paired, pass_at_k, rate
from rich.table import Table

from ragen_verl.rollout.trajectory import Record

__all__ = [
    "COLUMNS",
    "MEANS",
    "by_state",
    "comparisons",
    "interval",
    "markdown",
    "remarks",
    "results",
    "summarize",
    "table",
]

_PERCENTILES = {"median": 50, "p99": 99}
MEANS = {
    "turns": "turns",
    "valid_actions": "valid_action_ratio",
    "effective_actions": "effective_action_ratio",
    "response_tokens": "response_length",
}
"""Name in a summary -> key of a trajectory's metrics."""


def by_state(records: Iterable[Record]) -> dict[int, list[Record]]:
    """Seed of the initial state -> its episodes, without those in which environment or engine failed."""
    return grouped((record for record in records if not record["excluded"]), itemgetter("seed"))


def summarize(records: Sequence[Record], prices: tuple[float, float] | None = None) -> dict[str, Any]:
    """The figures of one policy in one environment.

    Args:
        records: its trajectories, with `usage`.
        prices: the prices of a million tokens in and out; None gives no cost.

    Returns:
        `episodes`, `states`, `excluded`, `error` (of the first excluded episode), `stops` (share of each stop reason
        among all episodes), `finishes` (how many responses ended for each reason that the server gave), `left_out`
        (arguments that the server refused). If any episode counts, also `success` and `return` (`Estimate` as a dict),
        `mean@k` and `pass@k` over the states whose k episodes all count (None without such a state) where k is the
        number of episodes that a state has, the means of `MEANS`, `latency` in seconds per response, and per episode
        `prompt_tokens`, `completion_tokens` and `cost`.
    """
    states = by_state(records)
    usages = [record["usage"] for record in records if "usage" in record]
    found: dict[str, Any] = {
        "episodes": len(records),
        "states": len(states),
        "excluded": sum(bool(record["excluded"]) for record in records),
        "error": next((record["error"] for record in records if record["excluded"]), None),
        "stops": {reason: count / len(records) for reason, count in Counter(r["stop_reason"] for r in records).items()},
        "finishes": dict(Counter(reason for usage in usages for reason in usage.get("finishes", ()))),
        "left_out": sorted({name for usage in usages for name in usage.get("left_out", ())}),
    }
    if not states:
        return found
    counted = [record for episodes in states.values() for record in episodes]
    outcomes = [[record["success"] for record in episodes] for episodes in states.values()]
    k = max(Counter(record["seed"] for record in records).values())
    whole = [one for one in outcomes if len(one) == k]
    returns = [float(np.mean([record["return"] for record in episodes])) for episodes in states.values()]
    found |= {
        "success": vars(rate(outcomes)),
        "return": vars(mean(returns)),
        "k": k,
        "mean@k": float(np.mean(whole)) if whole else None,
        "pass@k": pass_at_k(whole, k) if whole else None,
        **{name: float(np.mean([record["metrics"][key] for record in counted])) for name, key in MEANS.items()},
    }
    seconds = [one for usage in usages for one in usage["seconds"]]
    if seconds:
        found["latency"] = {name: float(np.percentile(seconds, q)) for name, q in _PERCENTILES.items()}
    for name in ("prompt_tokens", "completion_tokens"):
        found[name] = float(np.mean([usage[name] for usage in usages])) if usages else 0.0
    if prices:
        found["cost"] = (found["prompt_tokens"] * prices[0] + found["completion_tokens"] * prices[1]) / 1e6
    return found


def _compare(first: Sequence[Record], second: Sequence[Record]) -> Comparison | None:
    """Success of two policies on the initial states that both have played in one environment; None if there is none."""
    one, other = by_state(first), by_state(second)
    common = sorted(set(one) & set(other))
    if not common:
        return None
    means = [[float(np.mean([record["success"] for record in side[seed]])) for seed in common] for side in (one, other)]
    return paired(means[0], means[1])


def results(records: Mapping[str, Sequence[Record]], prices: tuple[float, float] | None = None) -> dict[str, Any]:
    """All figures of several policies.

    Args:
        records: policy -> its trajectories, in the order in which they are shown; each later one is compared with the
            first.
        prices: as in `summarize`.

    Returns:
        Data for JSON: `policies` (policy -> "split/environment" -> `summarize`) and `compared` (a list with `policy`,
        `with`, `environment`, `difference`, `p_value`).
    """
    played = {policy: grouped(rows, itemgetter("split", "env")) for policy, rows in records.items()}
    policies = {
        policy: {"/".join(place): summarize(rows, prices) for place, rows in found.items()}
        for policy, found in played.items()
    }
    compared = []
    baseline, *others = played
    for policy in others:
        for place, rows in played[policy].items():
            one = _compare(rows, played[baseline].get(place, []))
            if one is not None:
                compared.append(
                    {
                        "policy": policy,
                        "with": baseline,
                        "environment": "/".join(place),
                        "difference": vars(one.difference),
                        "p_value": one.p_value,
                    }
                )
    return {"policies": policies, "compared": compared}


COLUMNS = (
    "policy",
    "environment",
    "played",
    "success",
    "95 %",
    "mean@k",
    "pass@k",
    "return",
    "turns",
    "valid",
    "tokens",
    "p50 s",
)


def _rows(found: Mapping[str, Any]) -> list[list[str]]:
    """The figures as text, one row for each policy and environment, under `COLUMNS`."""
    out = []
    for policy, environments in found["policies"].items():
        for name, one in environments.items():
            played = f"{one['episodes'] - one['excluded']} of {one['episodes']}"
            if "success" not in one:
                out.append([policy, name, played, *[""] * (len(COLUMNS) - 3)])
                continue
            k, latency = one["k"], one.get("latency", {}).get("median")
            out.append(
                [
                    policy,
                    name,
                    played,
                    f"{one['success']['value']:.3f}",
                    interval(Estimate(**one["success"])),
                    *("-" if one[name] is None else f"{one[name]:.3f} (k={k})" for name in ("mean@k", "pass@k")),
                    f"{one['return']['value']:.3g}",
                    f"{one['turns']:.2f}",
                    f"{one['valid_actions']:.3f}",
                    f"{one['completion_tokens'] or one['response_tokens']:.0f}",
                    "" if latency is None else f"{latency:.3g}",
                ]
            )
    return out


def interval(one: Estimate) -> str:
    """The interval of an estimate as text."""
    return "" if one.low is None else f"{one.low:.3f} to {one.high:.3f}"


def comparisons(found: Mapping[str, Any]) -> list[str]:
    """The comparisons as sentences."""
    out = []
    for one in found["compared"]:
        difference = Estimate(**one["difference"])
        within = f" ({interval(difference)})" if difference.low is not None else ""
        out.append(
            f"{one['policy']} against {one['with']} in {one['environment']}: {difference.value:+.3f}{within}, "
            f"p = {one['p_value']:.2g} over {difference.states} initial states."
        )
    return out


_ENDS = {
    "length": "were cut at the highest number of tokens",
    "refusal": "were refusals",
    "content_filter": "were stopped by the server's filter",
}


def remarks(found: Mapping[str, Any]) -> list[str]:
    """What keeps the figures from saying how well a policy plays, each in a sentence."""
    out = []
    for policy, environments in found["policies"].items():
        for name, one in environments.items():
            where = f"{policy} in {name}"
            if one["excluded"]:
                out.append(
                    f"{where}: {one['excluded']} of {one['episodes']} episodes failed and are in no rate, the first "
                    f"with: {one['error']}. The same command plays again those that the server failed."
                )
            if full := round(one["stops"].get("context_full", 0) * one["episodes"]):
                out.append(f"{where}: {full} of {one['episodes']} episodes ended early, the model's context was full.")
            total = sum(one["finishes"].values())
            ends = [f"{one['finishes'][end]} {said}" for end, said in _ENDS.items() if end in one["finishes"]]
            if ends:
                out.append(f"{where}: of {total} responses {' and '.join(ends)}.")
        refused = sorted({name for one in environments.values() for name in one["left_out"]})
        if refused:
            out.append(f"{policy}: its server refuses {', '.join(refused)}, so it was asked without.")
    return out


def table(found: Mapping[str, Any], title: str) -> Table:
    """The figures as a table for the terminal."""
    out = Table(title=title, box=None, header_style="bold", title_justify="left")
    for column in COLUMNS:
        out.add_column(column, justify="left" if column in COLUMNS[:2] else "right", no_wrap=True)
    for row in _rows(found):
        out.add_row(*row)
    return out


def markdown(found: Mapping[str, Any], title: str) -> str:
    """The figures as a Markdown page."""
    lines = [f"# {title}", "", *markdown_table(COLUMNS, _rows(found))]
    said = [*comparisons(found), *remarks(found)]
    return "\n".join([*lines, *([""] if said else []), *(f"- {one}" for one in said)]) + "\n"
