"""The report: one HTML file that needs no network, with the runs' data in blocks of JSON.

Jinja2 escapes what goes into the markup and `htmlsafe_json_dumps` what goes into the data; the script sets texts only
as `textContent`. The page's content security policy names the hash of its one script, so nothing else can run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from ragen_lab.report.about import (
    OTHER,
    PHASES,
    TESTING,
    before_and_after,
    device_hours,
    differing,
    duration,
    facts,
    phases,
    seconds,
    verdict,
)
from ragen_lab.report.about import tokens_per_second as rate
from ragen_lab.report.curves import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, drawings, marks
from ragen_lab.report.metrics import columns, in_order
from ragen_lab.report.opening import variants
from ragen_lab.report.played import comparisons, played
from ragen_lab.report.reading import Run
from ragen_lab.report.selection import LIMIT, chosen, shortened
from ragen_lab.report.text import HIDDEN, visible

from ragen_verl.names import HELD_OUT_SUCCESS

__all__ = ["SCRIPTS", "render"]

SCRIPTS = ("text.js", "data.js", "plots.js", "charts.js", "list.js", "episode.js", "keys.js", "live.js")
_LISTED = ("env", "seed", "rollout_index", "outcome", "stop_reason", "return", "kept", "turns", "length", "invalid")
_STRONG = 0.95
"""Share of the turns whose strongest advantage the scale of colours holds."""


def render(runs: Sequence[Run], limit: int = LIMIT, live: bool = False) -> bytes:
    """The page as UTF-8.

    Args:
        runs: at least one; the curves of several share their panels.
        limit: about how many trajectories the page has, of all runs together.
        live: whether the page is served and asks for new data.
    """
    parts, blocks, total = [], [], 0
    preambles: dict[str, int] = {}
    strengths: list[float] = []
    for number, run in enumerate(runs):
        records, count = chosen(run, limit // len(runs))
        total += count
        for (split, step), found in records.items():
            if found:
                parts.append({"run": number, "split": split, "step": step, "items": _columns(found)})
                blocks.append([_compact(one, preambles) for one in found])
                strengths += _strengths(found)
    shown, same_settings = drawings(runs), variants(runs)
    index = {
        "runs": [run.name for run in runs],
        "policies": [bool(run.policy) for run in runs],
        "variants": [vars(one) for one in same_settings],
        "metrics": in_order(runs),
        "heldOut": HELD_OUT_SUCCESS,
        "scale": sorted(strengths)[int(_STRONG * len(strengths))] if strengths else 0,
        "fields": _LISTED,
        "parts": parts,
        "preambles": list(preambles),
        "hidden": HIDDEN,
        "charts": [one.data() for one in shown],
        "geometry": {"left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM, "width": WIDTH, "height": HEIGHT},
        "version": " ".join(run.version for run in runs) if live else "",
    }
    rows = differing([facts(run) for run in runs if not run.policy])
    script = Markup("(() => {{\n'use strict';\n{}\n}})();\n").format(Markup("\n".join(map(_asset, SCRIPTS))))
    style = Markup(_asset("report.css"))
    page = _environment().get_template("report.html")
    text = page.render(
        runs=runs,
        title=" and ".join(dict.fromkeys(run.recipe for run in runs)),
        drawings=shown,
        variants=same_settings,
        colours={run: number % 6 for number, one in enumerate(same_settings) for run in one.runs},
        marks=[marks(run) for run in runs],
        played=[row for run in runs if run.policy for row in played(run)],
        compared=comparisons(runs),
        columns=[columns(run) for run in runs],
        results=[before_and_after(run) for run in runs],
        phases=[phases(run) for run in runs],
        order=[*PHASES, OTHER, TESTING],
        took=[duration(seconds(run)) for run in runs],
        rates=[rate(run) for run in runs],
        hours=[device_hours(run) for run in runs],
        facts=[row for row in rows if row[3] or len(runs) == 1],
        same=[row[1] for row in rows if not row[3]],
        worded=verdict,
        index=index,
        blocks=blocks,
        counts=(sum(len(one) for one in blocks), total),
        script=script,
        style=style,
        policy=_policy(script, style, live),
        geometry=(LEFT, RIGHT, TOP, BOTTOM, WIDTH, HEIGHT),
    )
    # a lone surrogate becomes its JSON escape, which is also readable in the markup
    return text.encode("utf-8", "backslashreplace")


def _columns(records: Sequence[dict[str, Any]]) -> list[list[Any]]:
    return [[one[name] for name in _LISTED] for one in map(_listed, records)]


def _listed(record: dict[str, Any]) -> dict[str, Any]:
    """A trajectory's fields by which the list is filtered and sorted; its length is in tokens."""
    turns = record["turns"]
    return {
        **record,
        "turns": len(turns),
        "length": sum(turn["response_tokens"] for turn in turns),
        "invalid": not all(turn["format_ok"] and turn["valid"] for turn in turns),
    }


def _strengths(records: Sequence[dict[str, Any]]) -> list[float]:
    """The largest absolute advantage of each turn with tokens."""
    found = [(turn["tokens"] or {}).get("advantages") for record in records for turn in record["turns"]]
    return [max(abs(value or 0.0) for value in values) for values in found if values]


def _compact(record: dict[str, Any], preambles: dict[str, int]) -> dict[str, Any]:
    """The parts of a trajectory that are not in the index; every text occurs once, see `_around`."""
    turns = []
    for number, turn in enumerate(record["turns"]):
        short = _cut(turn)
        if number + 1 < len(record["turns"]) and turn["observation"] == record["turns"][number + 1]["state"]:
            del short["observation"]  # it is the state of the next turn
        short["user"] = _around(short["user"], short["state"])
        short["response"] = _around(short["response"], short["reasoning"])
        short["calls"] = [
            _cut({name: one for name, one in call.items() if one not in ("", None)}) for call in turn["calls"]
        ]
        short["tokens"] = _tokens(turn["tokens"] or {})
        turns.append({name: value for name, value in short.items() if value not in (None, "", [], {})})
    found = {"error": shortened(record["error"]), "seconds": record["seconds"], "turns": turns}
    if task := shortened(record["preamble"]):
        found["preamble"] = preambles.setdefault(task, len(preambles))
    return found


def _cut(texts: Mapping[str, Any]) -> dict[str, Any]:
    """The same with every text shortened."""
    return {name: shortened(value) if isinstance(value, str) else value for name, value in texts.items()}


def _around(text: str, inner: str) -> str | list[str]:
    """The texts before and after an inner text; the whole text where it does not contain the inner one."""
    before, found, after = text.partition(inner) if inner else (text, "", "")
    return [before, after] if found else text


def _tokens(tokens: dict[str, list]) -> dict[str, Any]:
    """Tokens with rounded numbers; one number replaces a list of equal numbers."""
    short: dict[str, Any] = {"sizes": tokens["sizes"]} if tokens else {}
    for name, values in tokens.items():
        if name != "sizes":
            one = values[0]
            equal = values.count(one) == len(values)
            short[name] = one if equal else [value if value is None else round(value, 3) for value in values]
    return short


def _policy(script: str, style: str, live: bool) -> str:
    """The content security policy: it allows this script and this style, and nothing else."""
    digests = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (script, style))
    own_script, own_style = (f"'sha256-{digest}'" for digest in digests)
    connect = "connect-src 'self'; " if live else ""
    return f"default-src 'none'; {connect}script-src {own_script}; style-src {own_style}; base-uri 'none'"


@cache
def _asset(name: str) -> str:
    return files("ragen_lab.report.assets").joinpath(name).read_text("utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(lambda name: _asset(f"{name}.j2")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else visible(value),
    )
    environment.filters["json"] = lambda value: htmlsafe_json_dumps(value, dumps=_dumps)
    return environment


def _dumps(value: Any, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
