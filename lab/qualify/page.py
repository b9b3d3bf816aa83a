"""The kit's page: one HTML file without script or network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from ragen_lab.qualify.timetable import PARTS

__all__ = ["cell", "points", "render"]

_WIDTH, _HEIGHT, _EDGE = 640, 200, 32


def render(report: Mapping[str, Any]) -> str:
    """The page of a kit's report (`Kit.report`)."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = cell
    template = files("ragen_lab.qualify").joinpath("page.html.j2").read_text("utf-8")
    parts = [{**one, "title": PARTS[one["part"]].title, "points": points(one["curve"])} for one in report["parts"]]
    tables = {one["part"]: {title: _columns(rows) for title, rows in one["tables"].items()} for one in parts}
    return environment.from_string(template).render(
        report=report, parts=parts, tables=tables, width=_WIDTH, height=_HEIGHT, edge=_EDGE
    )


def cell(value: Any) -> str:
    """A value of a table as text: four digits, yes and no."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def points(curve: Sequence[Sequence[float]]) -> str:
    """A learning curve, (step, share) each, as points of an SVG polyline."""
    last = max((step for step, _ in curve), default=0) or 1
    across, up = _WIDTH - 2 * _EDGE, _HEIGHT - 2 * _EDGE
    return " ".join(f"{_EDGE + across * step / last:.1f},{_HEIGHT - _EDGE - up * value:.1f}" for step, value in curve)


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the columns of a table, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))
