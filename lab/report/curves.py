"""The curves of a report: the metrics of each panel, and each panel as the geometry of an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log, log10
from typing import Any

from ragen_lab.report.reading import Run
from ragen_lab.report.trajectories import EXCLUDED, SOLVED, finite
from ragen_lab.statistics import rate, wilson

from ragen_verl.names import (
    ENTROPY,
    EPISODES,
    GRADIENT_NORM,
    HELD_OUT,
    HELD_OUT_SUCCESS,
    RETURN,
    REWARD_STD,
    TRAIN,
    TRAIN_SUCCESS,
)

__all__ = [
    "BOTTOM",
    "HEIGHT",
    "LEFT",
    "MOST_POINTS",
    "PANELS",
    "RIGHT",
    "TOP",
    "WIDTH",
    "Drawing",
    "Line",
    "Mark",
    "Panel",
    "drawings",
    "intervals",
    "marks",
]

_HELD_OUT_LINE, _TRAIN_LINE = "held-out", "training"
WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 42, 350, 20, 176
MOST_POINTS = 600
_LOG_FROM = 50.0
"""A panel has a logarithmic axis, if it may have one, where its largest value is this many times its smallest."""


@dataclass(frozen=True)
class Panel:
    """One diagram.

    Attributes:
        title, unit: the texts above it.
        lines: name of the line -> metric.
        percent: whether values are rates, so that the axis goes from 0 to 100 %.
        log: whether the axis may be logarithmic.
    """

    title: str
    unit: str
    lines: dict[str, str]
    percent: bool = False
    log: bool = False


PANELS = (
    Panel("Success", "share of trajectories", {_HELD_OUT_LINE: HELD_OUT_SUCCESS, _TRAIN_LINE: TRAIN_SUCCESS}, True),
    Panel("Return", "mean", {_HELD_OUT_LINE: f"{HELD_OUT}/{RETURN}", _TRAIN_LINE: f"{TRAIN}/{RETURN}"}),
    Panel("In-group standard deviation", "of returns", {_TRAIN_LINE: REWARD_STD}),
    Panel("Entropy", "nats a token", {_TRAIN_LINE: ENTROPY}),
    Panel("Gradient norm", "before clipping", {_TRAIN_LINE: GRADIENT_NORM}, log=True),
    Panel(
        "Reasoning length",
        "words a trajectory",
        {_HELD_OUT_LINE: f"{HELD_OUT}/reasoning_length", _TRAIN_LINE: f"{TRAIN}/reasoning_length"},
    ),
)


@dataclass(frozen=True)
class Mark:
    """A warning or note of the verdict: its step, its evidence, and what to change."""

    number: int
    step: int
    cause: str
    level: str
    metric: str
    words: str
    advice: str


@dataclass
class Line:
    """One line of a panel.

    Attributes:
        run: number of the run.
        name: `held-out` or `training`.
        points: (step, value, low, high); the interval's ends are None where there is none.
    """

    run: int
    name: str
    points: list[tuple[int, float, float | None, float | None]]


@dataclass
class Drawing:
    """A panel with lines, ready for the template; `x` and `y` turn values into places."""

    panel: Panel
    lines: list[Line]
    marks: list[Mark] = field(default_factory=list)

    def __post_init__(self) -> None:
        steps = [point[0] for line in self.lines for point in line.points]
        values = [one for line in self.lines for point in line.points for one in point[1:] if one is not None]
        self.first, self.last = min(steps), max(max(steps), min(steps) + 1)
        positive = [one for one in values if one > 0]
        self.log = self.panel.log and len(positive) == len(values) and max(values) > _LOG_FROM * min(values)
        if self.panel.percent:
            self.ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
        elif self.log:
            self.ticks = _decades(min(values), max(values))
        else:
            low, high = min(values), max(values)
            if high - low < 0.02 * abs(high):  # a flat line is drawn in the middle, without enlarged rounding errors
                low, high = low - 0.1 * abs(low), high + 0.1 * abs(high)
            elif 0 <= low < 0.6 * high:
                low = 0.0
            self.ticks = _ticks(low, high if high > low else low + 1)
        self.low, self.high = self.ticks[0], self.ticks[-1]
        self.steps = [int(one) for one in _ticks(self.first, self.last, 5, least=1.0) if self.first <= one <= self.last]

    def x(self, step: float) -> float:
        """Place of a step."""
        return round(LEFT + (RIGHT - LEFT) * (step - self.first) / (self.last - self.first), 1)

    def y(self, value: float) -> float:
        """Place of a value."""
        scale = log if self.log else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return round(BOTTOM - (BOTTOM - TOP) * min(1.0, max(0.0, share)), 1)

    def path(self, line: Line) -> str:
        """The line as an SVG path; a long line has only the lowest and highest value of each part."""
        return "M" + "L".join(f"{self.x(point[0])} {self.y(point[1])}" for point in _thinned(line.points))

    def band(self, line: Line) -> str:
        """The interval as an SVG polygon's points; "" where there is none."""
        have = [point for point in line.points if point[2] is not None and point[3] is not None]
        there = [f"{self.x(step)},{self.y(high)}" for step, _, _, high in have]
        back = [f"{self.x(step)},{self.y(low)}" for step, _, low, _ in reversed(have)]
        return " ".join(there + back) if len(have) > 1 else ""

    def label(self, value: float) -> str:
        """A value as a label of the axis."""
        return f"{value:.0%}" if self.panel.percent else f"{value:.4g}"

    def data(self) -> dict[str, Any]:
        """What the script needs to draw the panel anew: with another x axis, smoothed, or for several runs."""
        marks = [[one.number, one.step, one.level, one.metric in self.panel.lines.values()] for one in self.marks]
        return {
            "title": self.panel.title,
            "unit": self.panel.unit,
            "percent": self.panel.percent,
            "log": self.panel.log,
            "lines": self.panel.lines,
            "marks": marks,
        }


def _ticks(low: float, high: float, most: int = 4, least: float = 0.0) -> list[float]:
    """Round numbers at equal distances, the first at or below `low`, the last at or above `high`.

    Args:
        low, high: different numbers.
        most: the highest number of distances.
        least: the shortest distance; 1.0 takes whole numbers alone.
    """
    size = 10.0 ** floor(log10((high - low) / most))
    for width in (max(least, one * size) for one in (1, 2, 2.5, 5, 10, 20)):
        first, last = floor(low / width), ceil(high / width)
        if last - first <= most and (not least or width == int(width)):
            break
    return [number * width for number in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten around positive numbers, at most about five."""
    first, last = floor(log10(low)), ceil(log10(high))
    width = ceil((last - first) / 4)
    return [10.0**power for power in range(first, last + width, width)]


def drawings(runs: Sequence[Run]) -> list[Drawing]:
    """Every panel for which a run has values; with marks of warnings if there is only one run."""
    found = []
    warned = marks(runs[0]) if len(runs) == 1 else []
    for panel in PANELS:
        lines = []
        for number, run in enumerate(runs):
            for name, metric in panel.lines.items():
                if values := run.series(metric):
                    ends = intervals(run) if metric == HELD_OUT_SUCCESS else {}
                    points = [(step, value, *ends.get(step, (None, None))) for step, value in values]
                    lines.append(Line(number, name, points))
        if lines:
            drawing = Drawing(panel, lines)
            drawing.marks = [mark for mark in warned if drawing.first <= mark.step <= drawing.last]
            found.append(drawing)
    return found


def intervals(run: Run) -> dict[int, tuple[float, float]]:
    """Step -> ends of the 95 % interval of held-out success.

    It is Wilson's for one episode of each initial state. Several episodes of a state are not independent: then the
    interval is over the states, computed from the trajectories; without trajectories there is none.
    """
    repeated = (run.setting("actor_rollout_ref.rollout.val_kwargs.n") or 1) != 1
    found = {}
    for row in run.rows:
        success, episodes, step = row.get(HELD_OUT_SUCCESS), row.get(f"{HELD_OUT}/{EPISODES}"), row["step"]
        if not finite(success):
            continue
        if repeated or not finite(episodes):
            states: dict[tuple, list[bool]] = {}
            for one in run.records("val", step):
                if one["outcome"] != EXCLUDED:
                    states.setdefault((one["env"], one["seed"]), []).append(one["outcome"] == SOLVED)
            over = rate(list(states.values())) if states else None
            if over and over.low is not None and over.high is not None:
                found[step] = (over.low, over.high)
        elif episodes >= 1 and 0 <= success <= 1:
            found[step] = wilson(round(success * episodes), round(episodes))
    return found


def marks(run: Run) -> list[Mark]:
    """The verdict's findings in the order of their steps, numbered; without verdict.json the flags of the metrics."""
    found = [
        (one["step"], str(one.get("cause")), *_evidence(one.get("evidence")), str(one.get("advice") or ""))
        for one in _dicts(run.verdict.get("findings"))
    ]
    for fallen in _dicts([run.verdict.get("collapsed")]):
        found.append((fallen["step"], "collapsed", "collapsed", *_evidence(fallen)[1:], ""))
    if not run.verdict:
        flags: dict[str, int] = {}
        for row in run.rows:
            for name, value in row.items():
                if name.startswith("verdict/") and value == 1.0 and name != "verdict/warnings":
                    flags.setdefault(name.removeprefix("verdict/"), row["step"])
        found = [(step, cause, "warning", "", "", "") for cause, step in flags.items()]
    return [Mark(number, *one) for number, one in enumerate(sorted(found), start=1)]


def _dicts(found: Any) -> list[dict[str, Any]]:
    """The entries of a list that are mappings with a step."""
    found = found if isinstance(found, list) else []
    return [one for one in found if isinstance(one, dict) and isinstance(one.get("step"), int)]


def _evidence(evidence: Any) -> tuple[str, str, str]:
    """Level, metric, and the numbers in words."""
    evidence = evidence if isinstance(evidence, dict) else {}
    numbers = [f"{value:.3g}" for name in ("baseline", "value") if finite(value := evidence.get(name))]
    words = f" ({evidence['words']})" if evidence.get("words") else ""
    metric = str(evidence.get("metric", ""))
    return str(evidence.get("level", "warning")), metric, f"{metric} {' → '.join(numbers)}{words}".strip()


def _thinned(points: list) -> list:
    if len(points) <= MOST_POINTS:
        return points
    size = -(-len(points) // (MOST_POINTS // 2))
    kept = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        kept += sorted({min(part, key=lambda one: one[1]), max(part, key=lambda one: one[1])})
    return kept
