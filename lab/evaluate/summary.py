"""The results of an evaluation: one table row for each environment and split, and policies compared state by state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from ragen_lab.markdown import table as markdown_table
from ragen_lab.statistics import Comparison, Estimate, grouped, mean, paired, pass_at_k, rate
from rich.table import Table

from ragen_verl.errors import RecipeError
from ragen_verl.rollout.trajectory import Record

__all__ = [
    "COLUMNS",
    "MEANS",
    "Prices",
    "by_state",
    "comparisons",
    "interval",
    "markdown",
    "read_prices",
    "remarks",
    "results",
    "summarize",
    "table",
]

Prices = tuple[float, float]
"""The prices of a million tokens in and out."""

_PERCENTILES = {"median": 50, "p99": 99}
_UNMADE = ("malformed", "limit")  # calls that the environment never saw
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


def read_prices(file: Path) -> dict[str, Prices]:
    """A table of prices: a YAML file with a line `POLICY: [IN, OUT]` for each policy, as tables name it.

    Raises:
        RecipeError: there is no such file, or it is no such table.
    """
    try:
        table = yaml.safe_load(file.read_text("utf-8"))
        return {str(name): (float(given), float(made)) for name, (given, made) in table.items()}
    except (OSError, UnicodeError, yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        raise RecipeError(
            f"{file} is no table of prices ({error}): a line is POLICY: [IN, OUT], for a million tokens each."
        ) from None


def summarize(records: Sequence[Record], prices: Prices | None = None) -> dict[str, Any]:
    """The figures of one policy in one environment.

    Args:
        records: its trajectories, with `usage`.
        prices: None gives no cost.

    Returns:
        `episodes`, `states`, `excluded`, `error` (of the first excluded episode), `stops` (share of each stop reason
        among all episodes), `finishes` (how many responses ended for each reason that the server gave), `left_out`
        (arguments that the server refused). If any episode counts, also `success` and `return` (`Estimate` as a dict),
        `mean@k` and `pass@k` over the states whose k episodes all count (None without such a state) where k is the
        number of episodes that a state has, the means of `MEANS`, `latency` (kind of step -> `median` and `p99` in
        seconds: `engine`, a response; `environment`, a turn; `tool`, a call that was made), and per episode
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
    turns = [turn for record in counted for turn in record["turns"]]
    kinds = {
        "engine": [one for usage in usages for one in usage["seconds"]],
        "environment": [turn["env_seconds"] for turn in turns if "env_seconds" in turn],
        "tool": [call["seconds"] for turn in turns for call in turn.get("calls", ()) if call["error"] not in _UNMADE],
    }
    found["latency"] = {
        kind: {name: float(np.percentile(seconds, q)) for name, q in _PERCENTILES.items()}
        for kind, seconds in kinds.items()
        if seconds
    }
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


def results(records: Mapping[str, Sequence[Record]], prices: Mapping[str, Prices] | None = None) -> dict[str, Any]:
    """All figures of several policies.

    Args:
        records: policy -> its trajectories, in the order in which they are shown; each later one is compared with the
            first.
        prices: policy -> its prices.

    Returns:
        Data for JSON: `policies` (policy -> "split/environment" -> `summarize`) and `compared` (a list with `policy`,
        `with`, `environment`, `difference`, `p_value`), `costs` (sentences on time, tokens and cost).
    """
    played = {policy: grouped(rows, itemgetter("split", "env")) for policy, rows in records.items()}
    policies = {
        policy: {"/".join(place): summarize(rows, (prices or {}).get(policy)) for place, rows in found.items()}
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
    return {"policies": policies, "compared": compared, "costs": _costs(policies)}


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
            k, latency = one["k"], one["latency"].get("engine", {}).get("median")
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


def _costs(policies: Mapping[str, Any]) -> list[str]:
    """What an episode takes, a sentence for each policy and environment: seconds by kind of step, tokens, cost."""
    out = []
    for policy, environments in policies.items():
        for name, one in environments.items():
            if "latency" not in one:
                continue
            times = (f"{kind} {took['median']:.2g} and {took['p99']:.2g}" for kind, took in one["latency"].items())
            tokens = f"{one['prompt_tokens']:.0f} tokens in and " if one["prompt_tokens"] else ""
            tokens += f"{one['completion_tokens'] or one['response_tokens']:.0f} out"
            cost = f", which cost {one['cost']:.3g}" if "cost" in one else ""
            out.append(
                f"{policy} in {name}: median and 99th percentile of the seconds of a step: {', '.join(times)}; "
                f"{tokens} in an episode{cost}."
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
    said = [*comparisons(found), *found["costs"], *remarks(found)]
    return "\n".join([*lines, *([""] if said else []), *(f"- {one}" for one in said)]) + "\n"
