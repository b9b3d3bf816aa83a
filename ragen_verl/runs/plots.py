"""Plots of runs: the learning curve of one recipe, and the panels of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragen_verl.names import HELD_OUT_SUCCESS, TRAIN_SUCCESS
from ragen_verl.runs.folder import RunFolder

__all__ = ["learning_curve", "sweep_figure"]

_SMOOTHING = 0.3
"""Weight of a new step in the moving average of training success, which has few initial states in each step."""


def learning_curve(folders: Sequence[RunFolder], out: Path, title: str = "") -> Path:
    """Draw runs of one recipe in one plot.

    Args:
        folders: the runs, one colour each; several runs get a legend with their seeds.
        out: the PNG file to write.
        title: the title above the axes.

    Returns:
        `out`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for number, folder in enumerate(folders):
        rows, colour = folder.rows(), f"C{number}"
        train = [(row["step"], row[TRAIN_SUCCESS]) for row in rows if TRAIN_SUCCESS in row]
        held_out = [(row["step"], row[HELD_OUT_SUCCESS]) for row in rows if HELD_OUT_SUCCESS in row]
        axes.plot(*zip(*_smooth(train), strict=True), color=colour, alpha=0.5, linewidth=1)
        axes.plot(*zip(*held_out, strict=True), color=colour, marker="o", label=folder.path.name)
    axes.plot([], [], color="grey", alpha=0.5, linewidth=1, label="in training (moving average)")
    axes.plot([], [], color="grey", marker="o", label="on held-out seeds")
    axes.set(xlabel="step", ylabel="success", title=title, ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize="small")
    FigureCanvasAgg(figure).print_png(str(out))
    return out


def sweep_figure(found: dict[str, Any], out: Path) -> Path:
    """Draw `ragen_verl.runs.sweep.results`: one panel per metric, one colour per variant, one line per seed.

    Args:
        found: the results; every run has the same panels.
        out: the PNG file to write.

    Returns:
        `out`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    titles = list(found["runs"][0]["series"])
    variants = list(dict.fromkeys(run["variant"] for run in found["runs"]))
    rows = -(-len(titles) // 2)
    figure = Figure(figsize=(10, 2.6 * rows), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False, sharex=True).ravel()
    for axes, title in zip(panels, titles, strict=False):
        for run in found["runs"]:
            colour, points = f"C{variants.index(run['variant'])}", run["series"][title]
            if not points:
                continue
            axes.plot(*zip(*points, strict=True), color=colour, alpha=0.7, linewidth=1)
            warned = run["verdict"]["first_warning"]
            at_warning = [point for point in points if point[0] == warned]
            axes.plot(*zip(*at_warning, strict=True), "v", color=colour) if at_warning else None
        axes.set_title(title, fontsize="medium")
        axes.grid(alpha=0.3)
    for number, variant in enumerate(variants):
        panels[0].plot([], [], color=f"C{number}", label=variant)
    panels[0].plot([], [], "v", color="grey", label="first warning")
    panels[0].legend(fontsize="small")
    for axes in panels[len(titles) :]:
        axes.set_visible(False)
    for axes in panels[len(titles) - 2 : len(titles)]:
        axes.set_xlabel("step")
        axes.tick_params(labelbottom=True)
    FigureCanvasAgg(figure).print_png(str(out))
    return out


def _smooth(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    smooth: list[tuple[int, float]] = []
    for step, value in points:
        smooth.append((step, value if not smooth else _SMOOTHING * value + (1 - _SMOOTHING) * smooth[-1][1]))
    return smooth
